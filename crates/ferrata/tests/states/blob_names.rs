//! The name of a blob protects the blob from collection, anywhere in a run and in any JSON spelling.

use std::sync::Arc;
use std::time::Duration;

use ferrata::ask::Resolution;
use ferrata::blobs::{Blobs, CollectOptions};
use ferrata::prelude::*;
use ferrata::state::Patch;
use ferrata::testing::World;
use ferrata::{Effect, NodeError, Route};
use proptest::prelude::*;
use serde_json::value::RawValue;

/// The places that can contain a name.
#[derive(Clone, Copy, Debug)]
enum Place {
    Input,
    Config,
    FirstMessage,
    Message,
    Answer,
    Resolution,
    Edit,
    Question,
    Step,
    State,
    Output,
    Item,
    Progress,
    Letter,
    Error,
    Notes,
    Label,
    Pause,
}

const PLACES: [Place; 18] = [
    Place::Input,
    Place::Config,
    Place::FirstMessage,
    Place::Message,
    Place::Answer,
    Place::Resolution,
    Place::Edit,
    Place::Question,
    Place::Step,
    Place::State,
    Place::Output,
    Place::Item,
    Place::Progress,
    Place::Letter,
    Place::Error,
    Place::Notes,
    Place::Label,
    Place::Pause,
];

/// Writes a character of a text in JSON, with or without escapes.
fn spelled(c: char, how: u8) -> String {
    match how % 4 {
        0 => format!("\\u{:04x}", u32::from(c)),
        1 => format!("\\u{:04X}", u32::from(c)),
        2 if c == '/' => "\\/".to_owned(),
        _ if c == '"' || c == '\\' => format!("\\{c}"),
        _ => c.to_string(),
    }
}

/// Embeds a text in JSON within JSON, `levels` times.
fn hidden(text: &str, levels: usize, spelling: &[u8]) -> String {
    let mut text = text.to_owned();
    let mut hows = spelling.iter().copied().cycle();
    for _ in 0..=levels {
        let inside: String = text.chars().map(|c| spelled(c, hows.next().unwrap_or(3))).collect();
        text = format!("{{ \"a\\/😀\" : [\"{inside}\", 1e3] }}");
    }
    text
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// A node that puts the text in the requested place, and otherwise waits for a message and an answer.
fn graph(place: Place, text: &Arc<str>) -> Graph<Context> {
    let text = Arc::clone(text);
    let item = Arc::clone(&text);
    Graph::<Context>::builder("names")
        .node("work", move |cx: NodeContext, mut s: Draft<Context>| {
            let text = Arc::clone(&text);
            async move {
                let value = raw(&text);
                match place {
                    Place::Question => drop(cx.ask_with("q", Ask::<bool>::new(&*value)).await?),
                    Place::Answer => drop(cx.ask_with("q", Ask::<Box<RawValue>>::new("?")).await?),
                    Place::Message | Place::Pause | Place::Edit => drop(cx.receive::<Box<RawValue>>().await?),
                    Place::Step => drop(cx.step("s", async || Ok::<_, NodeError>(value)).await?),
                    Place::State => s.set("doc", &*value)?,
                    Place::Output => return Ok(s.with_output(value)),
                    Place::Progress => cx.progress(value).await?,
                    Place::Letter => cx.send_out("topic", value)?,
                    Place::Error => return Err(NodeError::new(&*text).fatal()),
                    Place::Notes => return Ok(s.with_notes(&*text)),
                    Place::Resolution => std::future::pending().await,
                    _ => {}
                }
                Ok(s.into_update())
            }
        })
        .effect(if matches!(place, Place::Resolution) { Effect::External } else { Effect::Write })
        .node("item", async |_cx, s| Ok(s))
        .entry("work")
        .route("work", ["item"], move |_s: &Context, _| match place {
            Place::Item => Route::each("item", [raw(&item)]),
            _ => Route::none(),
        })
        .build()
        .unwrap()
}

/// Puts a name into a run at a place.
async fn put_into(world: &World, place: Place, text: &str) -> Result<(), ferrata::Error> {
    let graph = graph(place, &Arc::from(text));
    let process = world.process().await?;
    let mut input = Context::new();
    if matches!(place, Place::Input) {
        input.set("doc", raw(text))?;
    }
    let start = process.start(&graph, input).id("r");
    let start = match place {
        Place::Config => start.config(raw(text)),
        Place::FirstMessage => start.message(raw(text)),
        Place::Label => start.label("doc", text),
        _ => start,
    };
    let run = world.pass(start).await?;
    if matches!(place, Place::Resolution) {
        world.pass_for(Duration::from_secs(1)).await;
        process.crash().await;
        let process = world.process().await?;
        let run = world.pass(process.resume(&graph, "r")).await?;
        world.pass(run.wait()).await?;
        let patch: Patch = serde_json::from_str(&format!("[{{\"set\":[\"doc\",{text}]}}]")).unwrap();
        return world.pass(process.respond(run.run(), "work", Resolution::Supply(patch))).await;
    }
    world.pass(run.wait()).await?;
    match place {
        Place::Message => world.pass(process.send(run.run(), raw(text))).await,
        Place::Answer => world.pass(process.respond(run.run(), "work", Answer::Accept(raw(text)))).await,
        Place::Pause => world.pass(process.pause(run.run(), text)).await,
        Place::Edit => {
            let patch: Patch = serde_json::from_str(&format!("[{{\"set\":[\"doc\",{text}]}}]")).unwrap();
            world.pass(process.edit(run.run(), patch)).await
        }
        _ => Ok(()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// A name in a message or an answer protects its value, even if the JSON contains escapes.
    ///
    /// Guarantees: BLOB-6.
    #[test]
    fn names_keep_values_at_any_place(
        place in prop::sample::select(PLACES.to_vec()),
        levels in 0..3_usize,
        spelling in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (world, blobs) = (World::new(), Blobs::in_memory());
            let blob = blobs.put("a value").await.unwrap();
            let text = match place {
                // A longer text would be rejected or cut.
                Place::Label => blob.to_string(),
                Place::Error => hidden(&blob.to_string(), 0, &spelling),
                _ => hidden(&blob.to_string(), levels, &spelling),
            };
            put_into(&world, place, &text).await.unwrap();
            for _ in 0..2 {
                let options = CollectOptions::default().with_grace(Duration::ZERO);
                let collected = blobs.collect(&[world.store()], options).await.unwrap();
                assert_eq!((collected.named, collected.removed), (1, 0));
            }
        });
    }
}
