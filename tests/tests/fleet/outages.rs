//! The servers are killed and restarted under load, and the network is bad.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrata_core::{Clock, SystemClock};
use ferrata_test_servers::{
    AppendFsync, FaultEffect, FaultPosition, FaultTrigger, PostgresServer, PostgresServerOptions, Proxy,
    ProxyFault, RedisServer, RedisServerOptions, Service,
};
use ferrata_tests::Space;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::task::{JoinSet, spawn_blocking};

use super::crew::{Crew, Dice, Size, until};
use super::play_at;

/// Number of kills of a server.
const KILLS: u32 = 3;

/// Number of network faults, or of refused statements, that a test must survive.
const FAULTS: usize = 3;
const REFUSED: i64 = 20;

/// A function that kills a server and restarts it.
type Fell = Arc<dyn Fn() + Send + Sync>;

pub(crate) async fn postgres() {
    let server =
        spawn_blocking(|| PostgresServer::start(PostgresServerOptions::default())).await.unwrap().unwrap();
    let (url, server) = (server.url(), Arc::new(server));
    let fell: Fell = Arc::new(move || {
        server.kill().unwrap();
        server.restart().unwrap();
    });
    play_at(Some(Service::Postgres), &url, async |space, dice| outlive(space, dice, &fell).await).await;
    spawn_blocking(move || drop(fell)).await.unwrap();
}

/// With `appendfsync always`, because `everysec` may lose the last second, as documented.
pub(crate) async fn redis() {
    let options = RedisServerOptions::default().with_appendfsync(AppendFsync::Always);
    let server = spawn_blocking(|| RedisServer::start(options)).await.unwrap().unwrap();
    let (url, server) = (server.url(), Arc::new(server));
    let fell: Fell = Arc::new(move || {
        server.kill().unwrap();
        server.restart().unwrap();
    });
    play_at(Some(Service::Redis), &url, async |space, dice| outlive(space, dice, &fell).await).await;
    spawn_blocking(move || drop(fell)).await.unwrap();
}

/// Kills the server repeatedly while three processes work.
async fn outlive(space: &Space, dice: &mut Dice, fell: &Fell) {
    let Size { ttl, runs } = Size::of(space);
    let crew = Crew::new(space, ttl).await;
    let names = ["a", "b", "c"];
    let members = names.map(|name| crew.spawn(&crew.url, dice.skew(), name, runs));
    let mut moments = Vec::new();
    for _ in 0..KILLS {
        let lines = crew.done().len() + 3 + usize::try_from(dice.below(40)).unwrap();
        let most = names.len() * runs as usize * 33;
        until("work", async || (crew.done().len() >= lines.min(most)).then_some(())).await;
        std::thread::park_timeout(Duration::from_micros(dice.below(15_000)));
        let fell = Arc::clone(fell);
        spawn_blocking(move || fell()).await.unwrap();
        moments.push(crew.moment().await);
    }
    crew.complete(names.len() * runs as usize).await;
    crew.check(&moments).await;
    for member in members {
        member.leave().await;
    }
}

/// Cuts, resets and delays requests of two processes. One process is delayed for longer than its heartbeat is valid.
pub(crate) async fn network(space: &Space, dice: &mut Dice) {
    let Size { ttl, runs } = Size::of(space);
    let crew = Crew::new(space, ttl).await;
    let proxy = Arc::new(Proxy::start(space.address().unwrap()).unwrap());
    let url = proxy.url(&crew.url);
    let mut members = Vec::from(["a", "b"].map(|name| crew.spawn(&url, dice.skew(), name, runs)));
    let well = crew.spawn(&crew.url, dice.skew(), "c", runs);
    until("both", async || members.iter().all(|member| !member.said().is_empty()).then_some(())).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (seed, over, bad) = (dice.below(u64::MAX), Arc::clone(&is_over), Arc::clone(&proxy));
    let mut weather = JoinSet::new();
    weather.spawn(async move {
        let (mut dice, clock) = (Dice(seed), SystemClock::new());
        let mut armed = 0;
        while !over.load(Ordering::Relaxed) {
            // The next fault follows some requests after the last one, so that rare requests meet as many faults.
            if bad.done().len() == armed {
                let place = FaultPosition::ALL[usize::try_from(dice.below(4)).unwrap()];
                let act = match dice.below(8) {
                    0..3 => FaultEffect::Close,
                    3..6 => FaultEffect::Reset,
                    6 => FaultEffect::Delay(Duration::from_millis(300)),
                    _ => FaultEffect::Delay(ttl + ttl / 2),
                };
                bad.arm(FaultTrigger::Request(2 + dice.below(25)), ProxyFault { place, act });
                armed += 1;
            }
            clock.sleep(Duration::from_millis(10)).await;
        }
        armed
    });
    let mut expected = 3 * runs as usize;
    crew.complete(expected).await;
    // The number of requests of a run varies, so start more runs until enough faults have happened.
    while proxy.done().len() < FAULTS {
        members.push(crew.spawn(&url, dice.skew(), &format!("d{expected}"), runs));
        expected += runs as usize;
        crew.complete(expected).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let armed = weather.join_next().await.unwrap().unwrap();
    proxy.disarm();
    println!("{} of {armed} faults happened", proxy.done().len());
    crew.check(&[]).await;
    for member in members.into_iter().chain([well]) {
        member.leave().await;
    }
}

/// Every tenth writing statement fails as if it had conflicted with another transaction: alternately as a deadlock and as a serialization failure.
pub(crate) async fn refusals(space: &Space, dice: &mut Dice) {
    let Size { ttl, runs } = Size::of(space);
    let crew = Crew::new(space, ttl).await;
    let (server, options) = crew.url.split_once("&schema=").or(crew.url.split_once("?schema=")).unwrap();
    let schema = options.split('&').next().unwrap();
    let mut sql = format!(
        "CREATE SEQUENCE {schema}.written;
         CREATE SEQUENCE {schema}.refused;
         CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF nextval('{schema}.written') % 10 = 0 THEN
             IF nextval('{schema}.refused') % 2 = 0 THEN
               RAISE EXCEPTION 'injected' USING ERRCODE = 'deadlock_detected';
             END IF;
             RAISE EXCEPTION 'injected' USING ERRCODE = 'serialization_failure';
           END IF;
           RETURN NULL;
         END $$;"
    );
    for table in ["runs", "records", "heartbeats"] {
        sql += &format!(
            "CREATE TRIGGER refuse AFTER INSERT OR UPDATE OR DELETE ON {schema}.{table}
             FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse();"
        );
    }
    let mut connection = PgConnection::connect(server).await.unwrap();
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    let names = ["a", "b", "c"];
    let mut members = Vec::from(names.map(|name| crew.spawn(&crew.url, dice.skew(), name, runs)));
    until("work", async || (crew.done().len() >= 20).then_some(())).await;
    members.remove(0).kill();
    let moment = crew.moment().await;
    members.push(crew.spawn(&crew.url, dice.skew(), "a", runs));
    let mut expected = names.len() * runs as usize;
    loop {
        crew.complete(expected).await;
        let refused = AssertSqlSafe(format!("SELECT last_value FROM {schema}.refused"));
        let refused: i64 = sqlx::query_scalar(refused).fetch_one(&mut connection).await.unwrap();
        println!("{refused} statements were refused");
        if refused >= REFUSED {
            break;
        }
        // Many runs may share a statement, so start more runs until enough statements were refused.
        members.push(crew.spawn(&crew.url, dice.skew(), &format!("d{expected}"), runs));
        expected += runs as usize;
    }
    crew.check(&[moment]).await;
}
