//! Starts a schedule, finds it, or gives it a newer definition.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, State};
use ferrata_core::{Error, ErrorKind, Result, TenantId};
use serde_json::json;

use crate::definition::{ScheduleDefinition, check_name};
use crate::policy::{CatchUp, Overlap};
use crate::progress::ScheduleProgress;
use crate::schedule::Schedule;
use crate::schedule_nodes::{self, CLOCK, ROLE, SCHEDULE, ScheduleNodes};
use crate::sealed::SealedType;

/// Maximum number of retries if other processes start the schedule or change its definition at the same moment.
const LOOKS: u32 = 32;

/// Schedule methods of [`Runtime`].
pub trait RuntimeScheduleExt: SealedType {
    /// Creates a request that starts or finds the schedule `name`.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::state::Context;
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_schedule::{Overlap, RuntimeScheduleExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let report = Graph::<Context>::builder("report").node("write", async |_cx, s| Ok(s)).entry("write").build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let nightly = runtime
    ///     .schedule("nightly")
    ///     .cron("0 3 * * *")
    ///     .timezone("Europe/Zurich")
    ///     .overlap(Overlap::Skip)
    ///     .start(&report, Context::new())
    ///     .await?;
    /// assert_eq!(nightly.status().await?.definition.cron, "0 3 * * *");
    /// # Ok(())
    /// # }
    /// ```
    fn schedule(&self, name: impl Into<String>) -> ScheduleRequest;
}

impl RuntimeScheduleExt for Runtime {
    fn schedule(&self, name: impl Into<String>) -> ScheduleRequest {
        ScheduleRequest::new(self.clone(), name.into())
    }
}

/// A request that starts or finds a schedule. Set the options, then call [`start`](Self::start) or [`find`](Self::find).
#[must_use = "a schedule starts only when the future of `start` is awaited"]
pub struct ScheduleRequest {
    runtime: Runtime,
    name: String,
    tenant: Result<TenantId>,
    version: u32,
    cron: Option<String>,
    timezone: String,
    jitter: Duration,
    tolerance: Duration,
    catch_up: CatchUp,
    overlap: Overlap,
}

impl ScheduleRequest {
    fn new(runtime: Runtime, name: String) -> Self {
        Self {
            runtime,
            name,
            tenant: Ok(TenantId::default()),
            version: 1,
            cron: None,
            timezone: "UTC".to_owned(),
            jitter: Duration::ZERO,
            // A dead process is detected after fifteen seconds, and other processes claim its runs one second later.
            tolerance: Duration::from_secs(60),
            catch_up: CatchUp::default(),
            overlap: Overlap::default(),
        }
    }

    /// Sets the tenant of the schedule and its runs.
    pub fn tenant(mut self, tenant: impl AsRef<str>) -> Self {
        self.tenant = TenantId::new(tenant);
        self
    }

    /// Sets the version of the definition, 1 to 1,000. The default is 1. Raise the version by one whenever you change another option of this request,
    /// the graph or the input. If processes declare different definitions, a process with the highest version drives the schedule.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets the cron pattern. [`Times`](crate::Times) describes its form.
    pub fn cron(mut self, pattern: impl Into<String>) -> Self {
        self.cron = Some(pattern.into());
        self
    }

    /// Sets the time zone in which the cron pattern applies, by its IANA name. The default is UTC.
    pub fn timezone(mut self, name: impl Into<String>) -> Self {
        self.timezone = name.into();
        self
    }

    /// Delays each start after its tick by up to `most`. By default there is no delay. The delay of a start follows from the schedule's name and the
    /// tick. `most` must be shorter than the time between two ticks, or starts pile up.
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = most;
        self
    }

    /// Sets the maximum delay of a start. If a run would start later, its tick counts as late, and the [catch-up policy](Self::catch_up) applies. The
    /// default is 60 seconds.
    pub fn tolerance(mut self, late: Duration) -> Self {
        self.tolerance = late;
        self
    }

    /// Sets the policy for ticks that came while no process served the schedule. The default is [`CatchUp::Last`].
    pub fn catch_up(mut self, policy: CatchUp) -> Self {
        self.catch_up = policy;
        self
    }

    /// Sets the policy for a tick that comes while the run of an earlier tick is active. The default is [`Overlap::Skip`].
    pub fn overlap(mut self, policy: Overlap) -> Self {
        self.overlap = policy;
        self
    }

    /// Starts the schedule, or finds it if it exists. From then on, this process serves the schedule and `graph`.
    ///
    /// Any number of processes may start the same schedule, any number of times. One of them drives it, and when that process ends, another takes
    /// over. A definition with a higher [version](Self::version) replaces the stored definition, even while a process drives the schedule. A
    /// definition with a lower version changes nothing, and then this process does not serve the schedule. The first tick is the next tick after the
    /// first start.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the name, the cron pattern, the zone, the version or a policy is invalid, or this is an operator's runtime.
    /// - [`ErrorKind::AlreadyExists`]: the store has a different definition under this version. Raise the version.
    /// - The errors of [`Runtime::start`].
    ///
    /// # Cancel safety
    ///
    /// If dropped, the schedule may or may not have been started, and may have its old or its new definition. Call it again.
    pub async fn start<S: State>(self, graph: &Graph<S>, input: S) -> Result<Schedule> {
        let tenant = self.tenant.clone()?;
        let definition = self.define(graph, &input)?;
        let times = definition.check()?;
        let schedule = Schedule::new(self.runtime, tenant, &self.name)?;
        let work = Arc::new(ScheduleNodes {
            definition,
            times,
            workflow: schedule.workflow().to_owned(),
            graph: graph.clone(),
            input,
            store: Arc::clone(schedule.runtime().store()),
        });
        let clockwork = schedule_nodes::graph(&work)?;
        ensure_served(schedule.runtime(), graph)?;
        start_or_update(&schedule, &work.definition, &clockwork).await?;
        Ok(schedule)
    }

    /// Returns the schedule if any process has started it; `None` otherwise.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the name or the tenant is invalid; otherwise any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn find(self) -> Result<Option<Schedule>> {
        let schedule = Schedule::new(self.runtime, self.tenant?, &self.name)?;
        Ok(schedule.find_status().await?.map(|_| schedule))
    }

    fn define<S: State>(&self, graph: &Graph<S>, input: &S) -> Result<ScheduleDefinition> {
        let refuse = |message: &str| Error::new(ErrorKind::Invalid, message);
        check_name(&self.name)?;
        let cron = self
            .cron
            .clone()
            .ok_or_else(|| refuse("the schedule has no times; set them with `.cron(..)`"))?;
        let input = serde_json::from_str(input.to_channels_json()?.get())
            .map_err(|source| refuse("cannot encode the input as JSON").with_source(source))?;
        let ms =
            |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(i64::MAX.unsigned_abs());
        Ok(ScheduleDefinition {
            name: self.name.clone(),
            version: self.version,
            cron,
            timezone: self.timezone.clone(),
            jitter_ms: ms(self.jitter),
            tolerance_ms: ms(self.tolerance),
            catch_up: self.catch_up,
            overlap: self.overlap,
            workflow: graph.name().to_string(),
            input,
        })
    }
}

impl fmt::Debug for ScheduleRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleRequest")
            .field("name", &self.name)
            .field("cron", &self.cron)
            .finish_non_exhaustive()
    }
}

/// Serves a graph, unless this process already serves it.
fn ensure_served<S: State>(runtime: &Runtime, graph: &Graph<S>) -> Result<()> {
    match runtime.serve(graph) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        served => served,
    }
}

/// Starts the schedule, or updates it to this definition. From then on this process serves the schedule. Exceptions: the schedule has a newer
/// definition, or it has ended.
async fn start_or_update(
    schedule: &Schedule,
    definition: &ScheduleDefinition,
    graph: &Graph<Context>,
) -> Result<()> {
    let runtime = schedule.runtime();
    for _ in 0..LOOKS {
        let found = match schedule.find_current().await? {
            Ok(found) => found,
            Err(generation) => {
                let state = schedule_nodes::initial_state(
                    definition,
                    &ScheduleProgress { generation, ..ScheduleProgress::default() },
                )?;
                let started = runtime
                    .start(graph, state)
                    .id(schedule.id_of(generation))
                    .tenant(schedule.tenant())
                    .label(SCHEDULE, &definition.name)
                    .label(ROLE, CLOCK)
                    .await;
                match started {
                    // Another process may have started the schedule with an older definition. Migrated to this definition, the input is the same.
                    Ok(_) => continue,
                    Err(error) if is_race(error.kind()) => continue,
                    Err(error) => return Err(error),
                }
            }
        };
        match found.definition.version.cmp(&definition.version) {
            Ordering::Greater => return Ok(()),
            Ordering::Equal if found.definition != *definition => {
                return Err(conflict_error(&found.definition, definition));
            }
            Ordering::Equal => return runtime.replace_served(graph),
            Ordering::Less if found.has_ended() => {
                tracing::warn!(schedule = definition.name, status = %found.run_status, "ignored a new version of a schedule that has ended");
                return Ok(());
            }
            Ordering::Less => {}
        }
        // A process that claims the run between these two calls has this definition.
        runtime.replace_served(graph)?;
        runtime.release_run(&found.run).await;
        if found.is_paused {
            // A process claims the schedule when it is unpaused, and then gives it the definition.
            return Ok(());
        }
        // The message wakes the schedule if it is idle. A process with the old definition only plans the next tick again.
        let word = json!({ "version": definition.version });
        match runtime.send(&found.run, word).await {
            Err(error) if !is_race(error.kind()) => return Err(error),
            _ => {}
        }
        match runtime.resume(graph, &found.run).take_over().await {
            Err(error) if !is_race(error.kind()) => return Err(error),
            _ => {}
        }
    }
    let message = "other processes keep starting or changing the schedule; retry";
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Returns whether the error means that another process was faster, so that the caller retries.
fn is_race(kind: ErrorKind) -> bool {
    use ErrorKind::{AlreadyExists, Conflict, Fenced, GraphChanged, NotFound, WrongStatus};
    matches!(kind, AlreadyExists | Conflict | Fenced | GraphChanged | NotFound | WrongStatus)
}

fn conflict_error(stored: &ScheduleDefinition, ours: &ScheduleDefinition) -> Error {
    let fields = [
        ("cron", stored.cron != ours.cron),
        ("time zone", stored.timezone != ours.timezone),
        ("jitter", stored.jitter_ms != ours.jitter_ms),
        ("tolerance", stored.tolerance_ms != ours.tolerance_ms),
        ("catch-up policy", stored.catch_up != ours.catch_up),
        ("overlap policy", stored.overlap != ours.overlap),
        ("workflow", stored.workflow != ours.workflow),
        ("input", stored.input != ours.input),
    ];
    let named: Vec<_> = fields.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect();
    let message = format!(
        "the schedule `{}` is stored in version {} with another {}; raise `.version(..)` with each change",
        ours.name,
        ours.version,
        named.join(", another ")
    );
    Error::new(ErrorKind::AlreadyExists, message)
}
