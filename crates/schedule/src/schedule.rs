//! A handle to a schedule, for code and operators.

use std::fmt;

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Position, RunsRequest, Runtime, SignalRequest};
use ferrata_core::store::RunHead;
use ferrata_core::{Error, ErrorKind, Result, RunId, RunKey, TenantId, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::definition::{ScheduleDefinition, check_name};
use crate::progress::{RunSpan, ScheduleProgress};
use crate::schedule_nodes::{CLOCK, DEFINITION, PROGRESS, ROLE, SCHEDULE, TICK, run_id};
use crate::times::Times;

/// Maximum number of logs of one schedule that are checked: the current log, and the logs that retention has not removed.
const LOGS: u32 = 100;

/// A handle to a schedule that was started. Dropping the handle changes nothing.
#[derive(Clone)]
pub struct Schedule {
    runtime: Runtime,
    tenant: TenantId,
    name: String,
    workflow: String,
}

/// The status of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScheduleStatus {
    /// The current run of the schedule. After some hundred ticks, the schedule continues in a new run.
    pub run: RunKey,
    /// The status of that run.
    pub run_status: RunStatus,
    /// Whether the schedule is paused. The value is true as soon as the pause is recorded, even before the process that drives the schedule has seen
    /// the pause.
    pub is_paused: bool,
    /// The definition of the schedule.
    pub definition: ScheduleDefinition,
    /// The progress of the schedule. The run of the active tick counts as started, and the ticks that have come since are decided.
    pub progress: ScheduleProgress,
    /// The tick whose run the schedule waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<ActiveTick>,
}

/// A tick whose run has started and not ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ActiveTick {
    /// The tick.
    pub tick: Timestamp,
    /// The run of the tick.
    pub run: RunKey,
    /// The time at which the run was started.
    pub started_at: Timestamp,
}

impl ScheduleStatus {
    /// Returns whether the schedule has ended, for example because it was cancelled. A schedule that has ended starts no more runs.
    pub fn has_ended(&self) -> bool {
        self.run_status.is_finished() && self.run_status != RunStatus::Failed
    }

    /// Returns the next ticks after a time, at most `most`. A paused schedule starts no run at these ticks.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`]: a newer version wrote the cron pattern or the time zone.
    pub fn next(&self, after: Timestamp, most: usize) -> Result<Vec<Timestamp>> {
        let after = self.progress.decided.map_or(after, |decided| decided.max(after));
        Ok(Times::new(&self.definition.cron, &self.definition.timezone)?.iter(after).take(most).collect())
    }
}

impl Schedule {
    pub(crate) fn new(runtime: Runtime, tenant: TenantId, name: &str) -> Result<Self> {
        check_name(name)?;
        let workflow = match tenant == TenantId::default() {
            true => format!("schedule:{name}"),
            // A process serves the workflows of all tenants, and each schedule has its own input.
            false => format!("schedule:{tenant}:{name}"),
        };
        Ok(Self { runtime, tenant, name: name.to_owned(), workflow })
    }

    /// Lists the schedules of a tenant, or of all tenants, by name. A purged schedule is listed as long as one of its earlier logs exists.
    ///
    /// # Errors
    ///
    /// Any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn list(runtime: &Runtime, tenant: Option<&TenantId>) -> Result<Vec<Self>> {
        let (mut found, mut after) = (Vec::<Self>::new(), None);
        loop {
            let mut asked = runtime.runs().label(ROLE, CLOCK).limit(1_000).after(after);
            if let Some(tenant) = tenant {
                asked = asked.tenant(tenant);
            }
            let page = asked.await?;
            for head in page.items {
                let name = head.facts.labels.get(SCHEDULE).unwrap_or_default();
                match Self::new(runtime.clone(), head.run.tenant.clone(), name) {
                    // Any run may have these labels. A run of another workflow is not a schedule.
                    Ok(schedule) if head.facts.workflow.as_str() == schedule.workflow => found.push(schedule),
                    _ => {}
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        found.sort_by(|a, b| (&a.tenant, &a.name).cmp(&(&b.tenant, &b.name)));
        found.dedup_by(|a, b| (&a.tenant, &a.name) == (&b.tenant, &b.name));
        Ok(found)
    }

    /// Returns the name of the schedule.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tenant of the schedule.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Returns the status of the schedule. The status already includes ticks that were skipped because a run is active.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the schedule was purged; otherwise any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn status(&self) -> Result<ScheduleStatus> {
        let missing =
            || Error::new(ErrorKind::NotFound, format!("cannot find the schedule `{}`; start it", self.name));
        let mut status = self.find_status().await?.ok_or_else(missing)?;
        self.add_active_tick(&mut status).await?;
        Ok(status)
    }

    /// Adds the tick whose run is active. The schedule itself records its decisions on later ticks only when that run ends.
    async fn add_active_tick(&self, status: &mut ScheduleStatus) -> Result<()> {
        let Some(&tick) = status.progress.due.front().filter(|_| !status.run_status.is_finished()) else {
            return Ok(());
        };
        let id = run_id(&self.name, tick);
        let run = RunKey { tenant: self.tenant.clone(), run: RunId::new(id)? };
        let head = self.runtime.head(&run).await?;
        let Some(head) = head.filter(|head| !head.status.is_finished() && self.is_of_tick(head)) else {
            return Ok(());
        };
        let now = self.runtime.clock().now();
        let started_at = head.facts.created;
        let span = RunSpan { began: started_at.min(now), ended: now };
        let times = Times::new(&status.definition.cron, &status.definition.timezone)?;
        status.progress = status.progress.with_active_run(&status.definition, &times, span);
        status.active = Some(ActiveTick { tick, run, started_at });
        Ok(())
    }

    /// Returns whether this schedule started the run for one of its ticks.
    fn is_of_tick(&self, head: &RunHead) -> bool {
        let label = |key| head.facts.labels.get(key);
        (label(SCHEDULE), label(ROLE)) == (Some(&*self.name), Some(TICK))
    }

    /// Creates a request that lists the runs of this schedule's ticks, newest first. The caller may add conditions.
    pub fn runs(&self) -> RunsRequest {
        self.runtime.runs().tenant(&self.tenant).label(SCHEDULE, &self.name).label(ROLE, TICK)
    }

    /// Creates a request that pauses the schedule until [`unpause`](Self::unpause); `.await` sends it. The run of a tick that has started continues.
    /// Exception: with [`CancelOld`](crate::Overlap::CancelOld), the run is paused together with the schedule. The [catch-up policy](crate::CatchUp)
    /// decides about the ticks that come during the pause.
    ///
    /// If the schedule continues in a new run at the same moment, the pause may reach only its previous run. If [`status`](Self::status) then shows
    /// another run that is not paused, pause the schedule again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the schedule was purged. The returned request fails as [`Runtime::pause`] does.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing changes before the returned request is awaited.
    pub async fn pause(&self, reason: impl Into<String>) -> Result<SignalRequest> {
        let reason = reason.into();
        Ok(self.runtime.pause(&self.status().await?.run, reason))
    }

    /// Creates a request that ends the pause of the schedule; `.await` sends it.
    ///
    /// # Errors
    ///
    /// The errors of [`pause`](Self::pause) and of [`Runtime::unpause`].
    ///
    /// # Cancel safety
    ///
    /// The same as for [`pause`](Self::pause).
    pub async fn unpause(&self) -> Result<SignalRequest> {
        Ok(self.runtime.unpause(&self.status().await?.run))
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn workflow(&self) -> &str {
        &self.workflow
    }

    /// Returns the id of the run that is the log with this number. A number that was used before gives the same id, so the caller passes a new
    /// number.
    pub(crate) fn id_of(&self, generation: u32) -> String {
        match generation {
            0 => format!("schedule:{}", self.name),
            // A name contains no colon.
            _ => format!("schedule:{}:{generation}", self.name),
        }
    }

    /// Finds the current run of the schedule.
    pub(crate) async fn find_status(&self) -> Result<Option<ScheduleStatus>> {
        Ok(self.find_current().await?.ok())
    }

    /// Finds the current run of the schedule: the last run without a successor. If there is none, returns the number of the log with which the
    /// schedule starts again.
    pub(crate) async fn find_current(&self) -> Result<Result<ScheduleStatus, u32>> {
        let (mut last, mut next): (Option<ScheduleStatus>, u32) = (None, 0);
        let page = self.runtime.runs().tenant(&self.tenant).workflow(&self.workflow).limit(LOGS).await?;
        for head in page.items {
            let Some(read) = self.read(&head).await? else { continue };
            let generation = read.progress.generation;
            if head.status == RunStatus::Completed {
                // This run had a successor. If the successor was purged, this run is not the schedule.
                next = next.max(generation.saturating_add(1));
            } else if last.as_ref().is_none_or(|last| generation > last.progress.generation) {
                last = Some(read);
            }
            // An active run has no successor yet. If it is about to end, its successor was listed before it.
            if last.as_ref().is_some_and(|last| !last.run_status.is_finished()) {
                break;
            }
        }
        Ok(last.ok_or(next))
    }

    async fn read(&self, head: &RunHead) -> Result<Option<ScheduleStatus>> {
        let now = match self.runtime.checkpoint(&head.run, Position::Latest).await {
            Ok(now) => now,
            // The run was purged after it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(ScheduleStatus {
            run: head.run.clone(),
            run_status: head.status,
            // This is true as soon as the pause is recorded. The process that drives the schedule sees the pause slightly later.
            is_paused: now.paused.is_some(),
            definition: read_channel(head, &now.state, DEFINITION)?,
            progress: read_channel(head, &now.state, PROGRESS)?,
            active: None,
        }))
    }
}

/// Reads a channel of a schedule's state.
fn read_channel<T: DeserializeOwned>(head: &RunHead, channels: &Value, name: &str) -> Result<T> {
    let value = channels.get(name).cloned().unwrap_or_default();
    serde_json::from_value(value).map_err(|source| {
        let message = "cannot read the schedule; upgrade this process if a newer program wrote it";
        Error::new(ErrorKind::Unsupported, message).with_run(&head.run).with_source(source)
    })
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("tenant", &self.tenant)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
