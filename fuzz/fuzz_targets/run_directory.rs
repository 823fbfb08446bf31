//! Any bytes as the files of a run directory: what `crates/dot/tests/fuzz` checks, guided by coverage.
#![no_main]

#[path = "../../crates/dot/tests/fuzz/directory.rs"]
mod directory;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // One for the process: nothing of an input is left for the next.
    static FOLDER: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("ferrata-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        folder
    });
    directory::exercise(folder, bytes);
});
