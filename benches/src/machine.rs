//! Describes the machine in one line, because figures mean little without it.

/// Describes the machine, and how busy it was at the start.
pub(crate) fn in_words() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("an unknown processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or("unknown");
    let profile = if cfg!(debug_assertions) { "not optimised" } else { "release" };
    format!("{cores} cores of {model}, {} build, load average {load} at the start", profile)
}
