//! All bytes that a store keeps, as visible to a person with access to the server or the disk.
#![expect(clippy::unwrap_used, reason = "a test that cannot see its space has failed")]

use std::path::Path;

use futures_util::TryStreamExt as _;
use redis::aio::MultiplexedConnection;
use sqlx::PgPool;
use sqlx::postgres::PgPoolCopyExt as _;

use crate::space::{BUCKET, Place, Space, nodes};
use crate::streams;

impl Space {
    /// Returns everything that the store keeps, and all files in the folder of the test. This includes files with their names, rows of all tables,
    /// keys with their values, messages with their headers, and objects. For a Redis server whose append-only file is readable, it includes that
    /// file.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn everything(&self) -> Vec<u8> {
        let mut all = Vec::new();
        files(self.folder(), &mut all);
        match self.place() {
            Place::Folder => {}
            Place::Schema { server, name } => tables(server, name, &mut all).await,
            Place::Streams { server, namespace } => streams::everything(server, namespace, &mut all).await,
            Place::Keys { server, prefix } => {
                for mut node in nodes(server).await {
                    keys(&mut node, prefix, &mut all).await;
                    append_only_file(&mut node, &mut all).await;
                }
            }
            Place::Objects { client, prefix } => objects(client, prefix, &mut all).await,
        }
        all
    }
}

/// Adds all files of a folder, with their names.
fn files(folder: &Path, all: &mut Vec<u8>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        all.extend(path.to_string_lossy().as_bytes());
        if path.is_dir() {
            files(&path, all);
        } else {
            all.extend(std::fs::read(&path).unwrap());
        }
    }
}

/// Adds all rows of all tables of a schema, as `COPY` gives them.
async fn tables(server: &str, schema: &str, all: &mut Vec<u8>) {
    let pool = PgPool::connect(server).await.unwrap();
    let named = sqlx::query_scalar("SELECT tablename::text FROM pg_tables WHERE schemaname = $1 ORDER BY 1");
    let tables: Vec<String> = named.bind(schema).fetch_all(&pool).await.unwrap();
    assert!(!tables.is_empty(), "there are no tables in {schema}");
    for table in tables {
        let copy = format!("COPY {schema}.{table} TO STDOUT (FORMAT binary)");
        let mut rows = pool.copy_out_raw(&copy).await.unwrap();
        while let Some(bytes) = rows.try_next().await.unwrap() {
            all.extend(bytes);
        }
    }
    pool.close().await;
}

/// Adds all keys of a prefix with their values. Reads each by its type, because `DUMP` compresses.
async fn keys(node: &mut MultiplexedConnection, prefix: &str, all: &mut Vec<u8>) {
    let mut cursor = 0_u64;
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{prefix}:*")).arg("COUNT").arg(10_000);
        let (next, keys): (u64, Vec<Vec<u8>>) = scan.query_async(node).await.unwrap();
        for key in keys {
            all.extend(&key);
            let kind: String = redis::cmd("TYPE").arg(&key).query_async(node).await.unwrap();
            let call = |words: &[&str]| {
                let mut call = redis::cmd(words[0]);
                call.arg(&key);
                for word in &words[1..] {
                    call.arg(*word);
                }
                call
            };
            let read = match kind.as_str() {
                "string" => call(&["GET"]),
                "list" => call(&["LRANGE", "0", "-1"]),
                "hash" => call(&["HGETALL"]),
                "set" => call(&["SMEMBERS"]),
                "zset" => call(&["ZRANGE", "0", "-1"]),
                "stream" => call(&["XRANGE", "-", "+"]),
                // The key has expired since it was listed.
                "none" => continue,
                other => panic!("unknown type of key: {other}"),
            };
            let value: redis::Value = read.query_async(node).await.unwrap();
            bytes_of(&value, all);
        }
        cursor = next;
        if cursor == 0 {
            return;
        }
    }
}

fn bytes_of(value: &redis::Value, all: &mut Vec<u8>) {
    match value {
        redis::Value::BulkString(bytes) => all.extend(bytes),
        redis::Value::SimpleString(text) => all.extend(text.as_bytes()),
        redis::Value::Array(values) | redis::Value::Set(values) => {
            values.iter().for_each(|value| bytes_of(value, all));
        }
        redis::Value::Map(pairs) => {
            for (key, value) in pairs {
                bytes_of(key, all);
                bytes_of(value, all);
            }
        }
        _ => {}
    }
}

/// Adds the append-only files of a server whose folder this process may read.
async fn append_only_file(node: &mut MultiplexedConnection, all: &mut Vec<u8>) {
    let mut told = Vec::new();
    for name in ["dir", "appenddirname"] {
        let said: Vec<String> = redis::cmd("CONFIG").arg("GET").arg(name).query_async(node).await.unwrap();
        told.extend(said.get(1).cloned());
    }
    let folder: std::path::PathBuf = told.iter().collect();
    if told.len() == 2 && folder.is_dir() {
        files(&folder, all);
    }
}

/// Adds all objects of a prefix, and their keys.
async fn objects(client: &aws_sdk_s3::Client, prefix: &str, all: &mut Vec<u8>) {
    let mut pages =
        client.list_objects_v2().bucket(BUCKET).prefix(format!("{prefix}/")).into_paginator().send();
    while let Some(page) = pages.next().await {
        for object in page.unwrap().contents() {
            let key = object.key().unwrap();
            all.extend(key.as_bytes());
            let got = client.get_object().bucket(BUCKET).key(key).send().await.unwrap();
            all.extend(format!("{:?}", got.metadata()).as_bytes());
            all.extend(got.body.collect().await.unwrap().into_bytes());
        }
    }
}
