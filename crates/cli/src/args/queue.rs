//! Arguments of `queue`.

use std::time::Duration;

use clap::Subcommand;

/// List queues, change their limits, and pause them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata queue ls\n  ferrata queue show openai\n  ferrata queue set openai --at-once 2 --by ann\n  ferrata queue pause openai --reason 'the provider is down'"
)]
pub(crate) struct QueueArgs {
    /// Action.
    #[command(subcommand)]
    pub(crate) command: QueueSubcommand,
}

/// Action on queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueSubcommand {
    /// List the queues by name.
    #[command(alias = "list")]
    Ls,
    /// Show the limits of a queue, the holders of its slots, and its waiters in order.
    #[command(alias = "get")]
    Show(QueueName),
    /// Override the limits that the code declares, until `--reset`. No holder loses its slot.
    Set(LimitArgs),
    /// Grant no slot until `unpause`. Holders of slots continue.
    Pause(PauseQueueArgs),
    /// Unpause a queue.
    Unpause(SteerQueue),
}

/// Queue of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct QueueName {
    /// Queue.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Queue and author of the change.
#[derive(Debug, clap::Args)]
pub(crate) struct SteerQueue {
    /// Queue.
    #[command(flatten)]
    pub(crate) queue: QueueName,
    /// Name to record as the author.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

/// Arguments of `queue pause`.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseQueueArgs {
    /// Queue and author.
    #[command(flatten)]
    pub(crate) steer: SteerQueue,
    /// Reason to record.
    #[arg(long, value_name = "TEXT", default_value = "paused by an operator")]
    pub(crate) reason: String,
}

/// Arguments of `queue set`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true).args(["at_once", "at_once_per_key", "rate", "rate_per_key", "reset"]))]
pub(crate) struct LimitArgs {
    /// Queue and author.
    #[command(flatten)]
    pub(crate) steer: SteerQueue,
    /// Number of slots.
    #[arg(long, value_name = "PLACES", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) at_once: Option<u32>,
    /// Maximum number of slots of one key.
    #[arg(long, value_name = "PLACES", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) at_once_per_key: Option<u32>,
    /// Grants per period, such as `100/60s`. Units are `ms`, `s`, `m` and `h`.
    #[arg(long, value_name = "STARTS/PERIOD", value_parser = rate)]
    pub(crate) rate: Option<(u32, Duration)>,
    /// Burst of `--rate`: grants that may come at once.
    #[arg(long, value_name = "STARTS", requires = "rate", default_value_t = 1)]
    pub(crate) burst: u32,
    /// Grants per period of one key, such as `10/60s`.
    #[arg(long, value_name = "STARTS/PERIOD", value_parser = rate)]
    pub(crate) rate_per_key: Option<(u32, Duration)>,
    /// Burst of `--rate-per-key`: grants of one key that may come at once.
    #[arg(long, value_name = "STARTS", requires = "rate_per_key", default_value_t = 1)]
    pub(crate) burst_per_key: u32,
    /// Remove all overrides. Limits in the same command are set after that.
    #[arg(long)]
    pub(crate) reset: bool,
}

/// Parses a rate such as `100/60s`.
fn rate(text: &str) -> Result<(u32, Duration), String> {
    let form = || "write a rate as 100/60s".to_owned();
    let (starts, period) = text.split_once('/').ok_or_else(form)?;
    let unit = period.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = match period.strip_suffix(unit) {
        Some("") => 1,
        number => number.unwrap_or_default().parse().map_err(|_| form())?,
    };
    let ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(form()),
    };
    let period = number.checked_mul(ms).map(Duration::from_millis).ok_or_else(form)?;
    Ok((starts.parse().map_err(|_| form())?, period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_as_it_is_said() {
        assert_eq!(rate("100/60s"), Ok((100, Duration::from_secs(60))));
        assert_eq!(rate("5/m"), Ok((5, Duration::from_secs(60))));
        assert_eq!(rate("1/250ms"), Ok((1, Duration::from_millis(250))));
        for wrong in [
            "",
            "/",
            "5",
            "5/",
            "/5s",
            "x/5s",
            "5/5d",
            "5/-5s",
            "5/99999999999999999999h",
            "5/9999999999999999999h",
        ] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
