//! The command `init` creates a crate with a durable function.

use std::io;
use std::path::Path;

use serde_json::json;

use crate::args::InitArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::output::quoted;

/// The name of the crate in the templates.
const TEMPLATE_NAME: &str = "starter";

/// The files of the crate. Cargo would take a `Cargo.toml` in this folder for a package of its own.
const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("../../template/Cargo.toml.in")),
    (".gitignore", "/target\n/.ferrata\n"),
    ("src/lib.rs", include_str!("../../template/src/lib.rs")),
    ("src/main.rs", include_str!("../../template/src/main.rs")),
    ("tests/crash.rs", include_str!("../../template/tests/crash.rs")),
];

/// Names that Cargo rejects, that mean a crate of the template, or that are keywords often used as names.
const RESERVED_NAMES: [&str; 12] = [
    "test",
    "core",
    "std",
    "alloc",
    "proc_macro",
    "build",
    "deps",
    "examples",
    "incremental",
    "ferrata",
    "tokio",
    "crate",
];

/// The command for a folder that can be used.
const NEXT: &str = "ferrata init my-orders";

pub(super) fn run(context: &CommandContext, args: &InitArgs) -> Result<ExitReason, CommandFailure> {
    let folder = &args.folder;
    let failed = |error: io::Error| {
        CommandFailure::internal(&format!("cannot create the crate in `{}`", folder.display()), &error)
            .or_type(NEXT)
    };
    let name = crate_name(folder)?;
    std::fs::create_dir_all(folder).map_err(failed)?;
    if !is_empty(folder).map_err(failed)? {
        let message =
            format!("the folder `{}` is not empty; choose a new or an empty folder", folder.display());
        return Err(CommandFailure::new(ExitReason::Conflict, message, NEXT));
    }
    for (path, template) in FILES {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let text = match path.extension().is_some_and(|extension| extension == "rs") {
            true => template.replace(TEMPLATE_NAME, &name.replace('-', "_")),
            false => template.replace(TEMPLATE_NAME, &name),
        };
        std::fs::write(path, text).map_err(failed)?;
    }
    let shown = folder.display().to_string();
    let files: Vec<&str> = FILES.iter().map(|(path, _)| *path).collect();
    context.out.one(
        &json!({ "name": name, "folder": shown, "files": files }),
        |_| name.clone(),
        |_| format!("created the crate {name} in {shown}: {}\n", files.join(", ")),
    )?;
    let enter =
        if folder.as_path() == Path::new(".") { String::new() } else { format!("cd {} && ", quoted(&shown)) };
    context.out.note(&format!("next: {enter}cargo test"));
    context
        .out
        .note("then: cargo run, and in another terminal in the same folder: ferrata answer order-1 yes");
    Ok(ExitReason::Done)
}

/// Returns the name of the folder, if it can be the name of a crate.
fn crate_name(folder: &Path) -> Result<String, CommandFailure> {
    let whole = std::path::absolute(folder)
        .map_err(|error| CommandFailure::internal(&format!("cannot use `{}`", folder.display()), &error))?;
    let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_first = |c: char| c.is_ascii_alphabetic();
    let is_next = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_reserved = RESERVED_NAMES.contains(&&*name.replace('-', "_"));
    if name.len() <= 64 && name.starts_with(is_first) && name.chars().all(is_next) && !is_reserved {
        return Ok(name);
    }
    let what = if is_reserved { "is reserved" } else { "is no name of a crate" };
    let message = format!(
        "the name of the folder `{}` {what}; use a letter, then letters, digits, `-` and `_`",
        name.escape_debug()
    );
    Err(CommandFailure::usage(message, NEXT))
}

/// Returns whether a folder is empty, except for the folder of Git.
fn is_empty(folder: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        if entry?.file_name() != ".git" {
            return Ok(false);
        }
    }
    Ok(true)
}
