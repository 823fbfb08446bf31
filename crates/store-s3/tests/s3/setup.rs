//! Setup refuses servers that cannot meet the contract, wrong names and wrong credentials, and its errors contain no secrets.

use ferrata_store::{CheckpointStore as _, Error, ErrorKind};
use ferrata_store_s3::{S3Options, S3Store};
use ferrata_test_servers::RefusingPort;

use crate::author::{is_kept, log_of, written};
use crate::memory::{ACCESS_KEY, BUCKET, Fault, Habit, Memory, SECRET_KEY};
use crate::raw::Raw;
use crate::spaces::client;

fn shows_no_secret(error: &Error) {
    let mut texts = vec![format!("{error} {error:?} {error:#?}")];
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        texts.push(format!("{cause} {cause:?}"));
        source = cause.source();
    }
    for secret in [SECRET_KEY, ACCESS_KEY, "Signature=", "Authorization:"] {
        assert!(texts.iter().all(|text| !text.contains(secret)), "{secret} is visible: {texts:?}");
    }
}

/// Guarantees: S3-4.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn server_breaking_store_rules_is_refused_each_time() {
    for (habit, words) in [
        (Habit::IgnoresIfNoneMatch, "ignores `If-None-Match"),
        (Habit::IgnoresIfMatch, "ignores `If-Match"),
        (Habit::LooksThenWrites, "writers of one new object at once"),
        (Habit::RefusesAndWrites, "rejected a second write but stored it"),
        (Habit::ListsLate, "listing omits"),
    ] {
        let memory = Memory::start_as(habit).await;
        for _ in 0..5 {
            let error = Raw::on(&memory).store().setup().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{habit:?}: {error:?}");
            assert!(error.to_string().contains(words), "{habit:?}: {error}");
            shows_no_secret(&error);
        }
        assert_eq!(memory.keys("some/prefix/probe"), [""; 0], "{habit:?}: the probe must leave nothing");
    }
}

/// Guarantees: S3-4.
#[tokio::test]
async fn a_sound_server_is_accepted_and_left_clean() {
    let memory = Memory::start().await;
    let store = Raw::on(&memory).store();
    for _ in 0..2 {
        store.setup().await.unwrap();
        assert_eq!(memory.keys(""), ["some/prefix/ferrata.json"], "only one marker may exist");
    }
    assert_eq!(memory.objects()["some/prefix/ferrata.json"].bytes, r#"{"version":1}"#);
}

/// Guarantees: S3-9.
#[tokio::test]
async fn another_layout_is_unsupported_for_every_call() {
    let memory = Memory::start().await;
    let store = Raw::on(&memory).store();
    let log = log_of("r", 1);
    for (marker, remedy) in [
        (r#"{"version":2}"#, "upgrade this process"),
        (r#"{"layout":3}"#, "use an empty prefix"),
        (r#"{"layout":1}"#, "use an empty prefix"),
    ] {
        memory.set("some/prefix/ferrata.json", marker);
        let errors = [
            store.setup().await.unwrap_err(),
            store.append(vec![log.next(1)]).await.remove(0).unwrap_err(),
            store.head(&log.key).await.unwrap_err(),
            store.purge(&log.key, None).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
            assert!(error.to_string().contains(remedy), "{error}");
        }
        assert_eq!(memory.keys("").len(), 1, "nothing was written");
    }
    memory.set("some/prefix/ferrata.json", "no mark");
    assert_eq!(store.setup().await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn wrong_names_and_credentials_are_caller_errors() {
    let memory = Memory::start().await;
    let open = |client, bucket| S3Store::with_client(client, bucket, "p", S3Options::default()).unwrap();
    let endpoint = memory.endpoint();
    let nobody = aws_sdk_s3::Config::builder()
        .behavior_version(aws_sdk_s3::config::BehaviorVersion::latest())
        .region(aws_sdk_s3::config::Region::from_static("us-east-1"))
        .endpoint_url(&endpoint)
        .force_path_style(true)
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    let nobody = aws_sdk_s3::Client::from_conf(nobody.build());
    let anonymous = aws_sdk_s3::Client::from_conf(nobody.config().to_builder().allow_no_auth().build());
    for (what, store, words) in [
        ("another bucket", open(client(&endpoint, SECRET_KEY), "another"), "NoSuchBucket"),
        ("another secret", open(client(&endpoint, "wrong"), BUCKET), "SignatureDoesNotMatch"),
        ("no credentials", open(nobody, BUCKET), "found no credentials"),
        ("no signature", open(anonymous, BUCKET), "found no credentials"),
    ] {
        let log = log_of("r", 1);
        let errors = [
            store.setup().await.unwrap_err(),
            store.append(vec![log.next(1)]).await.remove(0).unwrap_err(),
            store.load(&log.key, Default::default()).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error:?}");
            assert!(error.to_string().contains(words), "{what}: {error}");
            shows_no_secret(&error);
        }
        assert!(!format!("{store:?}").contains(SECRET_KEY), "{store:?}");
    }
    assert_eq!(memory.keys(""), [""; 0], "nothing was written");
}

/// Every error code of the table reaches the caller with its kind, even if the server repeats a secret in its message.
#[tokio::test]
async fn refusals_reach_the_caller_as_what_they_are() {
    for (status, code, kind) in [
        (403, "AccessDenied", ErrorKind::Invalid),
        (403, "InvalidAccessKeyId", ErrorKind::Invalid),
        (403, "SignatureDoesNotMatch", ErrorKind::Invalid),
        (404, "NoSuchBucket", ErrorKind::Invalid),
        (301, "PermanentRedirect", ErrorKind::Invalid),
        (400, "AuthorizationHeaderMalformed", ErrorKind::Invalid),
        (400, "EntityTooLarge", ErrorKind::TooLarge),
        (400, "KeyTooLongError", ErrorKind::Invalid),
        (501, "NotImplemented", ErrorKind::Unsupported),
        (503, "SlowDown", ErrorKind::Unavailable),
        (503, "ServiceUnavailable", ErrorKind::Unavailable),
        (400, "RequestTimeout", ErrorKind::Unavailable),
        (400, "ExpiredToken", ErrorKind::Unavailable),
        (409, "ConditionalRequestConflict", ErrorKind::Unavailable),
        (500, "InternalError", ErrorKind::Indeterminate),
    ] {
        let memory = Memory::start().await;
        let store = Raw::on(&memory).store();
        let log = written(&store, "r", &[1]).await;
        memory.plan(move |asked| asked.is_conditional.then_some(Fault::Refuse(status, code)));
        let error = store.append(vec![log.next(1)]).await.remove(0).unwrap_err();
        assert_eq!(error.kind(), kind, "{code}: {error:?}");
        assert!(error.to_string().contains(code), "{code}: {error}");
        shows_no_secret(&error);
        memory.no_plan();
        is_kept(&log, &store, code).await;
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    // Keep the port, so that no other server listens on it.
    let nobody = RefusingPort::new().unwrap();
    let address = nobody.address();
    let client = client(&format!("http://{address}"), SECRET_KEY);
    let store = S3Store::with_client(client, BUCKET, "p", S3Options::default()).unwrap();
    let log = log_of("r", 1);
    for error in [
        store.setup().await.unwrap_err(),
        store.append(vec![log.next(1)]).await.remove(0).unwrap_err(),
        store
            .heartbeat(
                &log.next(1).records[0].header.id.as_uuid().to_string().parse().unwrap(),
                std::time::Duration::MAX,
            )
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(!error.to_string().contains(&address.to_string()), "{error}");
    }
}

/// A store from a URL finds its credentials like the AWS tools. The test runs in a process with its own environment.
#[tokio::test]
async fn a_url_takes_its_credentials_from_the_environment() {
    let memory = Memory::start().await;
    let url = format!("s3://{BUCKET}/some/prefix?endpoint={}&path_style=true", memory.endpoint());
    for (secret, expected) in
        [(SECRET_KEY, "ok"), ("wrong", "Invalid"), ("", "Invalid store.setup: found no cred")]
    {
        let child = tokio::task::spawn_blocking({
            let url = url.clone();
            move || {
                let mut child = std::process::Command::new(std::env::current_exe().unwrap());
                child.env_clear();
                if !secret.is_empty() {
                    child.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", secret);
                }
                child
                    .args(["--exact", "setup::child_of_a_test", "--ignored", "--nocapture"])
                    .env("AWS_EC2_METADATA_DISABLED", "true")
                    .env("FERRATA_TEST_URL", url)
                    .output()
                    .unwrap()
            }
        });
        let output = child.await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains(&format!("setup: {expected}")),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[tokio::test]
#[ignore = "it is the other process of the test of credentials"]
async fn child_of_a_test() {
    let url = std::env::var("FERRATA_TEST_URL").unwrap();
    let store = S3Store::from_url(&url, S3Options::default()).unwrap();
    match store.setup().await {
        Ok(()) => println!("setup: ok"),
        Err(error) => println!("setup: {:?} {error}", error.kind()),
    }
}
