//! Small graphs, each with one kind of wait, failure or return.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_core::ask::Ask;
use ferrata_core::graph::{Effect, Graph, RetryPolicy, Route};
use ferrata_core::node::Conversation;
use ferrata_core::state::{Context, Reducer};

use super::{DAY, HOUR, MINUTE, Outside, begin, hear, once_more, paid, pay, step, unless_late};

pub(super) fn approval(revision: &str) -> Graph<Context> {
    begin("approval", revision)
        .gate(
            "approve",
            |_s: &Context| Ask::<u32>::new("How much?").deadline(DAY).or_default(3),
            |s, amount| s.set("amount", amount),
        )
        .revision(revision)
        .gate(
            "sign",
            |_s: &Context| Ask::<bool>::new("Sign?").deadline(2 * HOUR),
            |s, yes| s.set("signed", yes),
        )
        .revision(revision)
        .node("pay", async |_cx, mut s| {
            let n: i64 = s.get("n")?.unwrap_or_default();
            s.set("n", 2 * n)?;
            Ok(s)
        })
        .revision(revision)
        .node("refuse", async |_cx, _s| Ok(Context::update().set("refused", true)))
        .revision(revision)
        .entry("approve")
        .edge("approve", "sign")
        .edge("sign", "pay")
        .edge("sign", "refuse")
        .on_failure()
        .build()
        .unwrap()
}

pub(super) fn parallel(revision: &str) -> Graph<Context> {
    begin("parallel", revision)
        .node("fork", async |_cx, _s| Ok(()))
        .revision(revision)
        .node("left", async |cx, _s| {
            let colour = Ask::<String>::new("Which?").choices(["red", "green"]).deadline(10 * MINUTE);
            let (one, two) = tokio::join!(cx.ask::<bool>("one", 1), cx.ask_with("two", colour));
            Ok(Context::update().set("one", one?).set("two", unless_late(two, "none".to_owned())?))
        })
        .revision(revision)
        .node("right", async |cx, _s| Ok(Context::update().set("third", cx.ask::<u32>("third", 3).await?)))
        .revision(revision)
        .node("both", async |_cx, _s| Ok(Context::update().set("done", true)))
        .revision(revision)
        .entry("fork")
        .edge("fork", ["left", "right"])
        .edge(["left", "right"], "both")
        .build()
        .unwrap()
}

pub(super) fn talk(revision: &str) -> Graph<Context> {
    let policy = Conversation::<Context>::new()
        .max_messages(3)
        .idle_timeout(10 * MINUTE)
        .exit_on("/quit")
        .until(|s| s.contains_key("solved"));
    begin("talk", revision)
        .channel("said", Reducer::Append)
        .conversation("talk", ["after"], policy, async |_cx, _s, text: String| {
            let update = Context::update().append("said", [text.clone()]);
            Ok(if text == "solved" { update.set("solved", true) } else { update })
        })
        .revision(revision)
        .node("after", async |cx, _s| {
            let stars: Option<u32> = cx.receive_within(DAY).await?;
            Ok(Context::update().set("stars", stars.unwrap_or_default()))
        })
        .revision(revision)
        .entry("talk")
        .build()
        .unwrap()
}

pub(super) fn journey(revision: &str) -> Graph<Context> {
    begin("journey", revision)
        .node("nap", async |cx, _s| {
            cx.sleep(Duration::from_secs(30)).await?;
            cx.sleep(3 * DAY).await?;
            let ticket = step(&cx, "ticket").await?;
            Ok(Context::update().set("ticket", ticket))
        })
        .revision(revision)
        .node("home", async |_cx, _s| Ok(Context::update().set("home", true)))
        .revision(revision)
        .entry("nap")
        .edge("nap", "home")
        .build()
        .unwrap()
}

pub(super) fn flaky(revision: &str) -> Graph<Context> {
    let twice = RetryPolicy::none()
        .with_attempts(3)
        .with_delay(Duration::from_secs(20))
        .with_factor(30.0)
        .with_cap(HOUR)
        .with_jitter(0.0);
    begin("flaky", revision)
        .node("walk", async |cx, _s| {
            let outside = cx.resource::<Outside>();
            let hat = step(&cx, "hat").await?;
            if outside.rain.load(Ordering::SeqCst) {
                return Err("it rains".into());
            }
            Ok(Context::update().set("hat", hat))
        })
        .retry(twice)
        .revision(revision)
        .node("home", async |_cx, _s| Ok(Context::update().set("home", true)))
        .revision(revision)
        .entry("walk")
        .edge("walk", "home")
        .build()
        .unwrap()
}

pub(super) fn guarded(revision: &str) -> Graph<Context> {
    begin("guarded", revision)
        .node("build", async |_cx, _s| Ok(Context::update().set("built", true)))
        .interrupt_before()
        .interrupt_after()
        .revision(revision)
        .node("ship", async |_cx, _s| Ok(Context::update().set("shipped", true)))
        .interrupt_before()
        .revision(revision)
        .entry("build")
        .edge("build", "ship")
        .build()
        .unwrap()
}

pub(super) fn replan(revision: &str) -> Graph<Context> {
    begin("replan", revision)
        .node("plan", async |cx, _s| Ok(Context::update().set("plan", cx.visit().get())))
        .max_replans(1)
        .revision(revision)
        .node("draft", async |cx, _s| {
            Ok(Context::update().set("good", cx.ask::<bool>("good", "Good?").await?))
        })
        .revision(revision)
        .node("print", async |_cx, _s| Ok(Context::update().set("printed", true)))
        .revision(revision)
        .entry("plan")
        .edge("plan", "draft")
        .route("draft", ["plan", "print"], |s, _cx| match s.get::<bool>("good") {
            Ok(Some(true)) => Route::to("print"),
            _ => Route::revisit("plan", "not good"),
        })
        .build()
        .unwrap()
}

pub(super) fn payment(revision: &str) -> Graph<Context> {
    let paid = paid(revision);
    begin("payment", revision)
        .node("prepare", async |_cx, _s| Ok(Context::update().set("prepared", true)))
        .revision(revision)
        .node("pay", move |cx, _s| async move {
            pay(&cx).await?;
            Ok(Context::update().set(paid, 1))
        })
        .effect(Effect::External)
        .retry(once_more())
        .timeout(2 * MINUTE)
        .revision(revision)
        .node("thank", async |_cx, _s| Ok(Context::update().set("thanked", true)))
        .revision(revision)
        .entry("prepare")
        .edge("prepare", "pay")
        .edge("pay", "thank")
        .build()
        .unwrap()
}

pub(super) fn mixed(revision: &str) -> Graph<Context> {
    begin("mixed", revision)
        .node("fork", async |_cx, _s| Ok(()))
        .revision(revision)
        .node("ask", async |cx, _s| {
            let amount = cx.ask_with("amount", Ask::<u32>::new("How much?").deadline(HOUR)).await;
            Ok(Context::update().set("amount", unless_late(amount, 0)?))
        })
        .revision(revision)
        .node("hear", async |cx, _s| {
            let text = hear(&cx, 1).await?;
            Ok(Context::update().set("heard", text))
        })
        .revision(revision)
        .node("nap", async |cx, _s| {
            cx.sleep(Duration::from_secs(30)).await?;
            cx.sleep(2 * DAY).await?;
            Ok(Context::update().set("rested", true))
        })
        .revision(revision)
        .node("end", async |_cx, _s| Ok(Context::update().set("end", true)))
        .revision(revision)
        .entry("fork")
        .edge("fork", ["ask", "hear", "nap"])
        .edge(["ask", "hear", "nap"], "end")
        .build()
        .unwrap()
}
