//! Tests the programs with `--store`: each is killed with `kill -9` on every store except files, and continues.

use std::process::Command;

use ferrata_test_servers::Service;
use ferrata_tests::StoreKind;

use crate::support::program;
use crate::{approval, chat, crash, families, survey};

/// Defines the tests of the programs on a store.
macro_rules! on {
    ($store:ident, $kind:expr) => {
        mod $store {
            use super::*;

            #[tokio::test]
            async fn crash_example_continues_after_last_recorded_node() {
                crash::is_killed_on($kind).await;
            }

            #[tokio::test]
            async fn approval_is_paid_once_after_kills() {
                approval::is_killed_on($kind).await;
            }

            #[tokio::test]
            async fn killed_chat_preserves_notes_and_answers_once() {
                chat::is_killed_on($kind).await;
            }

            #[tokio::test]
            async fn killed_file_map_counts_each_file_once() {
                families::a_map_is_killed_on($kind).await;
            }

            #[tokio::test]
            async fn killed_research_asks_once_with_same_report() {
                families::research_is_killed_on($kind).await;
            }

            #[tokio::test]
            async fn killed_survey_continues_and_measures_once() {
                survey::is_killed_on($kind).await;
            }
        }
    };
}

on!(sqlite, StoreKind::Sqlite);
on!(postgres, StoreKind::Server(Service::Postgres));
on!(nats, StoreKind::Server(Service::Nats));
on!(redis, StoreKind::Server(Service::Redis));
on!(redis_cluster, StoreKind::Server(Service::RedisCluster));
on!(s3, StoreKind::Server(Service::S3));

#[test]
fn wrong_store_error_shows_correct_command() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["crash_and_resume", "approval", "chat", "map_reduce", "research", "survey", "transfer"] {
        for (url, says) in [
            ("runs", "what names the store is no URL"),
            ("pigeon://me:secret@loft", "there is no store for `pigeon:` URLs"),
            ("postgres://me:secret@host:port/db", "the store's URL is invalid"),
            ("s3://key:secret@runs", "credentials do not belong in the URL"),
            ("redis://:secret@host?what=1", "redis"),
        ] {
            let mut command = Command::new(program(name));
            if name == "approval" {
                command.args(["start", "a"]);
            }
            let output = command.args(["--store", url]).current_dir(temp.path()).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{name} {url}: {errors}");
            assert!(errors.contains(says), "{name} {url}: {errors}");
            assert!(errors.contains("type --store with one of file:FOLDER"), "{name} {url}: {errors}");
            assert!(!errors.contains("secret"), "{name} {url}: {errors}");
        }
        let memory = Command::new(program(name))
            .args(["start", "a"].iter().filter(|_| name == "approval"))
            .args(["--store", "memory:"])
            .current_dir(temp.path())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&memory.stderr);
        assert!(errors.contains("use --store file:FOLDER"), "{name}: {errors}");
    }
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "a wrong store stores nothing");
}
