//! The command `demo` makes example runs, drives them, and shows them in a browser.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::{Clock as _, IdSource as _, RandomIds, SystemClock};

use super::serve;
use crate::args::{DemoArgs, GlobalArgs, ServeArgs};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::run::Signals;
use crate::store;

/// The time between attempts of the run that retries.
const RETRY_DELAY: Duration = Duration::from_secs(15);

/// The time for a part of the run that is always running.
const PART: Duration = Duration::from_secs(3);

/// The number of these parts, enough for an hour.
const PARTS: u32 = 1_200;

pub(super) async fn run(context: &CommandContext, args: &DemoArgs) -> Result<ExitReason, CommandFailure> {
    let mut signals = Signals::listen()?;
    let folder = if context.global.is_store_given { None } else { Some(TemporaryFolder::create()?) };
    let store =
        folder.as_ref().map_or_else(|| context.global.store.clone(), |folder| store::of_folder(&folder.0));
    let context = CommandContext::new(GlobalArgs { store, ..context.global.clone() });
    let runtime = Runtime::builder_with(context.new_store()?).build().await?;
    let served = tokio::select! {
        served = show_runs(&context, args, &runtime) => served,
        () = signals.next() => Ok(ExitReason::Done),
    };
    // The running node never ends by itself. The store may be temporary, so a failed release loses nothing.
    let _ = runtime.shutdown(Duration::ZERO).await;
    drop(folder);
    served
}

/// Starts the runs, and serves the page until Ctrl-C.
async fn show_runs(
    context: &CommandContext,
    args: &DemoArgs,
    runtime: &Runtime,
) -> Result<ExitReason, CommandFailure> {
    start_runs(runtime).await?;
    context.out.note(
        "the page shows four runs: `order-1` failed, `invoice-1` waits for an answer, `delivery-1` retries, and `import-1` is running",
    );
    context.next("ferrata show order-1");
    let page = ServeArgs {
        listen: args.listen,
        open: args.open,
        allow_writes: true,
        host: Vec::new(),
        token: None,
        redact: Vec::new(),
        by: None,
    };
    serve::run(context, &page).await.map_err(|failure| match failure.exit() {
        ExitReason::Usage => failure.or_type("ferrata demo --listen 127.0.0.1:0"),
        _ => failure,
    })
}

/// Starts the example runs, or continues those of an earlier call.
async fn start_runs(runtime: &Runtime) -> Result<(), CommandFailure> {
    let order = flow("order", order());
    let invalid = |error: GraphError| CommandFailure::from(ferrata::Error::from(error));
    let (invoice, delivery, import) =
        (invoice().map_err(invalid)?, delivery().map_err(invalid)?, import().map_err(invalid)?);
    runtime.serve(order.graph().map_err(invalid)?)?;
    for graph in [&invoice, &delivery, &import] {
        runtime.serve(graph)?;
    }
    runtime.call(&order, 120).id("order-1").user("ann").label("demo", "failed").start().await?;
    let mut bill = Context::new();
    bill.set("supplier", "ACME")?;
    bill.set("amount", 120)?;
    runtime.start(&invoice, bill).id("invoice-1").label("demo", "waiting").await?;
    runtime.start(&delivery, Context::new()).id("delivery-1").label("demo", "retrying").await?;
    runtime.start(&import, Context::new()).id("import-1").label("demo", "running").await?;
    Ok(())
}

/// A durable function that fails at the payment, and undoes the reservation. A retry of the run succeeds.
fn order() -> impl Fn(FlowContext, u32) -> futures_util::future::BoxFuture<'static, Result<String, FlowError>>
{
    let is_declined = Arc::new(AtomicBool::new(true));
    move |cx, amount| {
        let is_declined = Arc::clone(&is_declined);
        Box::pin(async move {
            let slot = cx.step("reserve", || async { Ok::<_, FlowError>("shelf 7".to_owned()) }).await?;
            let pay = || {
                let declined = is_declined.swap(false, Ordering::Relaxed);
                let paid = Ok(format!("paid {amount} EUR for {slot}"));
                std::future::ready(if declined {
                    Err(FlowError::fatal("the card was declined"))
                } else {
                    paid
                })
            };
            cx.step("pay", pay).await
        })
    }
}

/// A graph that waits for an approval.
fn invoice() -> Result<Graph<Context>, GraphError> {
    Graph::<Context>::builder("invoice")
        .node("check", async |_cx, mut s: Draft<Context>| {
            s.set("checked", true)?;
            Ok(s)
        })
        .gate(
            "approve",
            |_s: &Context| Ask::<bool>::new("Pay 120 EUR to ACME?"),
            |s, is_approved| s.set("approved", is_approved),
        )
        .node("pay", async |_cx, mut s: Draft<Context>| {
            s.set("paid", true)?;
            Ok(s)
        })
        .node("reject", async |_cx, s| Ok(s))
        .entry("check")
        .edge("check", "approve")
        .edge("approve", "pay")
        .when(|s| s.get::<bool>("approved").ok().flatten() == Some(true))
        .edge("approve", "reject")
        .otherwise()
        .build()
}

/// A graph with a node that fails at each attempt.
fn delivery() -> Result<Graph<Context>, GraphError> {
    Graph::<Context>::builder("delivery")
        .node("pack", async |_cx, s| Ok(s))
        .node("book_carrier", async |_cx, _s| -> NodeResult<Context> {
            Err("the carrier does not answer".into())
        })
        .retry(RetryPolicy::none().with_attempts(1_000).with_delay(RETRY_DELAY).with_factor(1.0))
        .node("ship", async |_cx, s| Ok(s))
        .entry("pack")
        .edge("pack", "book_carrier")
        .edge("book_carrier", "ship")
        .build()
}

/// A graph with a node that reports its progress for an hour.
fn import() -> Result<Graph<Context>, GraphError> {
    Graph::<Context>::builder("import")
        .node("read", async |cx: NodeContext, s: Draft<Context>| {
            let clock = SystemClock::new();
            for part in 0..PARTS {
                cx.progress(format!("part {part} of {PARTS}")).await?;
                clock.sleep(PART).await;
            }
            Ok(s)
        })
        .entry("read")
        .build()
}

/// A new folder, which is removed when the value is dropped.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn create() -> Result<Self, CommandFailure> {
        let random = RandomIds::new().next(SystemClock::new().now()).simple().to_string();
        let folder = std::env::temp_dir().join(format!("ferrata-demo-{random}"));
        create_private(&folder).map_err(|error| {
            CommandFailure::internal(&format!("cannot create `{}`", folder.display()), &error)
        })?;
        Ok(Self(folder))
    }
}

fn create_private(folder: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // If the removal fails, the folder stays in the temporary folder of the system.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
