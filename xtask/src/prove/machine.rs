//! The machine of a proof, without its name.

use std::fs;
use std::num::NonZero;

/// Describes processor, memory, system and load.
pub(super) fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut parts = vec![format!("{}, {cores} cores", processor(&read("/proc/cpuinfo")))];
    parts.extend(memory(&read("/proc/meminfo")));
    parts.push(format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim()));
    if let Some(load) = read("/proc/loadavg").split_whitespace().next() {
        parts.push(format!("load {load} at the start"));
    }
    parts.join("; ")
}

fn processor(cpuinfo: &str) -> &str {
    let models = cpuinfo.lines().filter_map(|line| line.strip_prefix("model name"));
    let mut names = models.filter_map(|line| line.split_once(':')).map(|(_, name)| name.trim());
    names.next().unwrap_or(std::env::consts::ARCH)
}

fn memory(meminfo: &str) -> Option<String> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.split_whitespace().next()?.parse().ok()?;
    Some(format!("{} GiB", (kib + (1 << 19)) >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_read_from_files_of_system() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        assert_eq!(processor(""), std::env::consts::ARCH);
        assert_eq!(memory("MemTotal:       16318456 kB\nMemFree: 1 kB\n").unwrap(), "16 GiB");
        assert_eq!(memory(""), None);
    }
}
