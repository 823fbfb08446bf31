//! What `queue` takes.

use std::time::Duration;

use clap::Subcommand;

/// Look at queues, change their limits, and hold their lines for a while.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata queue ls\n  ferrata queue show openai\n  ferrata queue set openai --at-once 2 --by ann\n  ferrata queue pause openai --reason 'the provider is down'"
)]
pub(crate) struct QueueArgs {
    /// What is to be done.
    #[command(subcommand)]
    pub(crate) command: QueueCommand,
}

/// What is to be done with queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List the queues, by their names.
    #[command(alias = "list")]
    Ls,
    /// Show what a queue allows, who holds places and who waits, in their order.
    #[command(alias = "get")]
    Show(QueueName),
    /// Set limits instead of those that the code declares, until `--reset`; no holder loses its place.
    Set(LimitArgs),
    /// Let no run in until `unpause`; holders of places go on.
    Pause(PauseQueueArgs),
    /// Let a paused queue go on.
    Unpause(SteerQueue),
}

/// Which queue is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct QueueName {
    /// The queue.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Which queue is changed, and by whom.
#[derive(Debug, clap::Args)]
pub(crate) struct SteerQueue {
    /// Which queue.
    #[command(flatten)]
    pub(crate) queue: QueueName,
    /// Who says so; it is recorded.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

/// What `queue pause` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseQueueArgs {
    /// Which queue, and who speaks.
    #[command(flatten)]
    pub(crate) steer: SteerQueue,
    /// Why; it is recorded.
    #[arg(long, value_name = "TEXT", default_value = "paused by an operator")]
    pub(crate) reason: String,
}

/// What `queue set` takes.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true).args(["at_once", "at_once_per_key", "rate", "rate_per_key", "reset"]))]
pub(crate) struct LimitArgs {
    /// Which queue, and who speaks.
    #[command(flatten)]
    pub(crate) steer: SteerQueue,
    /// How many places there are.
    #[arg(long, value_name = "PLACES", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) at_once: Option<u32>,
    /// How many of them one key may have.
    #[arg(long, value_name = "PLACES", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) at_once_per_key: Option<u32>,
    /// How many places are given in a period, as `100/60s`: a number, and `ms`, `s`, `m` or `h` behind the slash.
    #[arg(long, value_name = "STARTS/PERIOD", value_parser = rate)]
    pub(crate) rate: Option<(u32, Duration)>,
    /// How many may begin at one moment, with `--rate`.
    #[arg(long, value_name = "STARTS", requires = "rate", default_value_t = 1)]
    pub(crate) burst: u32,
    /// How many places one key is given in a period, as `10/60s`.
    #[arg(long, value_name = "STARTS/PERIOD", value_parser = rate)]
    pub(crate) rate_per_key: Option<(u32, Duration)>,
    /// How many of one key may begin at one moment, with `--rate-per-key`.
    #[arg(long, value_name = "STARTS", requires = "rate_per_key", default_value_t = 1)]
    pub(crate) burst_per_key: u32,
    /// Take back what was set, and go by the code again; limits beside it are set after that.
    #[arg(long)]
    pub(crate) reset: bool,
}

/// Reads a rate.
fn rate(text: &str) -> Result<(u32, Duration), String> {
    let form = || "write it as 100/60s".to_owned();
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
