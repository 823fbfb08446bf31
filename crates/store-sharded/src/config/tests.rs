//! Valid and invalid files of shards.

use std::sync::Mutex;

use ferrata_store::MemoryStore;

use super::*;

/// Opens the store for a file with this text. Returns the opened URLs, without the folder of the file.
fn open(text: &str) -> Result<(ShardedStore, Vec<String>)> {
    let folder = tempfile::Builder::new().prefix("sh%20 é").tempdir().unwrap();
    let file = folder.path().join("fleet");
    fs::write(&file, text).unwrap();
    let opened = Mutex::new(Vec::new());
    let url = format!("sharded:{}", file.display().to_string().replace('%', "%25"));
    let store = ShardedStore::from_url(&url, |url| {
        let bytes = url::decode(url).unwrap();
        let plain = String::from_utf8(bytes).unwrap().replace(&folder.path().display().to_string(), "HERE");
        opened.lock().unwrap().push(plain);
        match url.starts_with("pigeon:") {
            true => Err(Error::new(ErrorKind::Unsupported, "there is no store for `pigeon:` URLs")),
            false => Ok(Arc::new(MemoryStore::new())),
        }
    });
    store.map(|store| (store, opened.into_inner().unwrap()))
}

#[test]
fn a_file_names_shards_and_generations() {
    let text = "# Where runs go.\n\nshard north file:north\r\n  shard south\tpostgres://me:secret@db/runs \n\
                generation north\nshard east file:/east\ngeneration north south east\n";
    let (store, opened) = open(text).unwrap();
    assert_eq!(opened, ["file:HERE/north", "postgres://me:secret@db/runs", "file:/east"]);
    let shown = format!("{store:?}");
    assert!(shown.contains(r#"[["north"], ["north", "south", "east"]]"#), "{shown}");
    // Each of them is a separate store.
    assert!(open("shard a memory:\nshard b memory:\ngeneration a b").is_ok());
}

/// Guarantees: SHARD-10.
#[test]
fn invalid_line_is_named_with_remedy() {
    let shards = "shard a file:a\nshard b file:b\n";
    let cases = [
        ("", 1, "names no shard", "add a line"),
        ("# nothing\n\n", 1, "names no shard", "add a line"),
        (shards, 2, "no generation", "`generation a b`"),
        ("shard a\n", 1, "write only `shard`", "its name and its URL"),
        ("shard a file:secret file:b\n", 1, "write only `shard`", "its name and its URL"),
        ("\nmemory:secret a\n", 2, "begin the line", "`shard`"),
        ("Shard a file:secret", 1, "begin the line", "`generation`"),
        ("shard a file:secret\n\nshard a file:b", 3, "`a` is already in line 1", "a unique name"),
        (
            "shard a file:secret\nshard b file:secret",
            2,
            "the shard `a` in line 1 has the same store",
            "a separate store",
        ),
        ("shard a sharded:secret", 1, "cannot be a sharded store", "list its shards"),
        ("shard a SHARDED:secret", 1, "cannot be a sharded store", "list its shards"),
        ("shard a file:a\ngeneration", 2, "has no shard", "name the shards"),
        ("shard a file:a\ngeneration a z", 2, "`z`", "add `shard z`"),
        ("generation a\nshard a file:a", 1, "no line before it", "add `shard a`"),
        ("shard a file:a\ngeneration a a", 2, "twice", "remove one"),
    ];
    for (text, line, what, remedy) in cases {
        let error = open(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        let shown = error.to_string();
        for part in [&format!("line {line} of "), "/fleet: ", what, remedy] {
            assert!(shown.contains(part), "{text:?}: {shown} has no {part:?}");
        }
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
    let error = open("shard a file:a\nshard idle file:b\ngeneration a").unwrap_err().to_string();
    assert!(error.contains("line 2 of") && error.contains("`idle` is in no generation"), "{error}");
}

/// Guarantees: SHARD-10.
#[test]
fn unopenable_store_is_named_with_line() {
    let error = open("shard a file:a\nshard b pigeon:secret\ngeneration a b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("line 2 of") && error.to_string().contains("`b`"), "{error}");
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    let error = open("shard a/b file:a\ngeneration a/b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("/fleet"), "{error}");
}

#[test]
fn a_url_that_names_no_file_is_refused() {
    let never = |_: &str| -> Result<Arc<dyn CheckpointStore>> { panic!("nothing must be opened") };
    for url in [
        "sharded:",
        "sharded",
        "file:x",
        "sharded://host/x",
        "sharded:/x?y",
        "sharded:/x#y",
        "sharded:%",
        "sharded:%ff",
        "sharded:%00",
    ] {
        let error = ShardedStore::from_url(url, never).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().contains("write sharded:///absolute/path"), "{url}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("nowhere"), folder.path().to_owned()] {
        let error = ShardedStore::from_url(&format!("sharded://{}", path.display()), never).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("cannot be read"), "{error}");
    }
}
