//! Reads this process's memory and processor time.

use std::time::Duration;

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use crate::error::{Error, Result};

/// Memory of this process that is in use: its resident set.
pub(crate) fn memory_bytes() -> Result<u64> {
    read(ProcessRefreshKind::nothing().with_memory(), sysinfo::Process::memory)
}

/// Processor time that this process has used on all cores.
pub(crate) fn cpu_time() -> Result<Duration> {
    let kind = ProcessRefreshKind::nothing().with_cpu();
    read(kind, sysinfo::Process::accumulated_cpu_time).map(Duration::from_millis)
}

fn read<T>(kind: ProcessRefreshKind, what: impl FnOnce(&sysinfo::Process) -> T) -> Result<T> {
    let mut system = System::new();
    let own = Pid::from_u32(std::process::id());
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), true, kind);
    system.process(own).map(what).ok_or_else(|| {
        Error::new("the system does not report the memory and processor time of this process")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn memory_and_time_are_counted() {
        let memory = memory_bytes().unwrap();
        let cpu = cpu_time().unwrap();
        let start = Instant::now();
        let block = vec![1_u8; 64 << 20];
        while start.elapsed() < Duration::from_millis(300) {
            std::hint::black_box(&block);
        }
        assert!(memory_bytes().unwrap() > memory + (32 << 20));
        assert!(cpu_time().unwrap() > cpu);
    }
}
