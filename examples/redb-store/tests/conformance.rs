//! The store passes the conformance suite.
#![expect(clippy::unwrap_used, reason = "a space that cannot do its work fails the test")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_example_redb_store::RedbStore;
use ferrata_store::codec::binary;
use ferrata_store::{CheckpointStore, Clock, FORMAT, Fingerprint, RunKey, Seq, SystemClock, Timestamp};
use ferrata_store_conformance::{Damage, ModelTest, Space, StoreFactory, suite};
use ferrata_testing::ManualClock;
use redb::{AccessGuard, Database, DatabaseError, Table, TableDefinition};
use tempfile::TempDir;

type RecordKey = ((&'static str, &'static str), u64);
type RecordRow = (&'static str, &'static [u8], &'static [u8]);
type Records<'t> = Table<'t, RecordKey, RecordRow>;

/// The records as the store lays them out. Key: tenant, run id, number. Value: checksum, header, body.
const RECORDS: TableDefinition<'_, RecordKey, RecordRow> = TableDefinition::new("records");

struct Files;

/// A file and a clock of its own for each test.
struct File {
    folder: TempDir,
    clock: ManualClock,
    /// The store and its database, while one of them is open.
    open: Mutex<(Weak<RedbStore>, Weak<Database>)>,
}

#[async_trait]
impl StoreFactory for Files {
    async fn fresh(&self) -> Box<dyn Space> {
        // The suite tests what is stored, and not the speed of a disk. So use a file system in memory, if the machine has one.
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        let open = Mutex::new((Weak::new(), Weak::new()));
        Box::new(File { folder: folder.unwrap(), clock: ManualClock::default(), open })
    }
}

impl File {
    /// Returns the open database. If none is open, opens the file again, as a new process does.
    async fn database(&self) -> Arc<Database> {
        loop {
            if let Some(db) = self.open.lock().unwrap().1.upgrade() {
                return db;
            }
            match Database::create(self.folder.path().join("runs.redb")) {
                Ok(db) => {
                    let db = Arc::new(db);
                    self.open.lock().unwrap().1 = Arc::downgrade(&db);
                    return db;
                }
                // A blocking thread of a dropped call is closing it.
                Err(DatabaseError::DatabaseAlreadyOpen) => {
                    SystemClock::new().sleep(Duration::from_millis(1)).await
                }
                Err(error) => panic!("cannot open the file: {error}"),
            }
        }
    }
}

/// A row of the table: number, checksum, header and body.
type Row = (u64, String, Vec<u8>, Vec<u8>);

fn take_rows(records: &mut Records<'_>, run: &RunKey) -> Vec<Row> {
    let key = (run.tenant.as_str(), run.run.as_str());
    let taken = records.extract_from_if((key, 0)..=(key, u64::MAX), |_, _| true).unwrap();
    let own = |(key, row): (AccessGuard<'_, RecordKey>, AccessGuard<'_, RecordRow>)| {
        let (sum, header, body) = row.value();
        (key.value().1, sum.to_owned(), header.to_vec(), body.to_vec())
    };
    taken.map(|row| own(row.unwrap())).collect()
}

fn put_rows(records: &mut Records<'_>, run: &RunKey, rows: &[Row]) {
    for (seq, sum, header, body) in rows {
        let key = ((run.tenant.as_str(), run.run.as_str()), *seq);
        records.insert(key, (sum.as_str(), header.as_slice(), body.as_slice())).unwrap();
    }
}

/// Damages the records of a run. Returns false for an unknown kind of damage.
fn damage_rows(rows: &mut Vec<Row>, run: &RunKey, damage: &Damage) -> bool {
    let find = |rows: &[Row], seq: &Seq| rows.iter().position(|row| row.0 == seq.get()).unwrap();
    match damage {
        Damage::Body(seq) => {
            let at = find(rows, seq);
            rows[at].3[0] ^= 1;
        }
        Damage::Gone(seq) => drop(rows.remove(find(rows, seq))),
        Damage::Tail => drop(rows.pop()),
        Damage::Torn => {
            let (.., body) = rows.last_mut().unwrap();
            body.truncate(body.len() / 2);
        }
        Damage::NewerFormat(seq) => {
            let at = find(rows, seq);
            let (_, sum, header, _) = &mut rows[at];
            let (mut newer, base) = binary::read(header).unwrap();
            newer.format = FORMAT + 1;
            *header = binary::write(&newer, base).unwrap().to_vec();
            *sum = Fingerprint::of(&[run.to_string().as_bytes(), b" ", header].concat()).to_string();
        }
        _ => return false,
    }
    true
}

#[async_trait]
impl Space for File {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        if let Some(store) = self.open.lock().unwrap().0.upgrade() {
            return store;
        }
        let db = self.database().await;
        let store = Arc::new(RedbStore::new(db, Arc::new(self.clock.clone())));
        self.open.lock().unwrap().0 = Arc::downgrade(&store);
        store
    }

    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        let db = self.database().await;
        let transaction = db.begin_write().unwrap();
        let mut records = transaction.open_table(RECORDS).unwrap();
        let mut rows = take_rows(&mut records, run);
        if let Damage::Swapped(other) = &damage {
            let others = take_rows(&mut records, other);
            put_rows(&mut records, other, &rows);
            rows = others;
        } else if !damage_rows(&mut rows, run, &damage) {
            return false;
        }
        put_rows(&mut records, run, &rows);
        drop(records);
        transaction.commit().unwrap();
        true
    }

    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        self.clock.advance(by);
        Some(self.clock.now())
    }
}

suite!(Files, without: [
    notices = "the store sends none, so the runtime polls",
    transactions = "nodes cannot write to the database of the store",
]);

/// More seeds than the suite runs on each store.
#[test]
fn more_random_calls_match_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for seed in 100..110 {
        runtime.block_on(ModelTest::default().with_seed(seed).with_instances(2).run(&Files));
    }
}
