//! Describes the machine that the program runs on.

use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::report::Host;

/// The present state of this machine.
pub(crate) fn host() -> Host {
    let what = RefreshKind::nothing()
        .with_cpu(CpuRefreshKind::nothing())
        .with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(what);
    let cpu = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
    Host {
        system: System::long_os_version().unwrap_or_else(|| std::env::consts::OS.to_owned()),
        kernel: System::kernel_version().unwrap_or_else(unknown),
        cpu: cpu.filter(|brand| !brand.is_empty()).unwrap_or_else(unknown),
        cores: u32::try_from(system.cpus().len()).unwrap_or(u32::MAX),
        memory_bytes: system.total_memory(),
        load_before: System::load_average().one,
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn the_machine_is_described() {
        let host = host();
        assert!(
            host.cores >= 1 && host.memory_bytes > 1 << 20 && host.load_before >= 0.0,
            "{host:?}"
        );
        assert!(
            !host.system.is_empty() && !host.kernel.is_empty() && !host.cpu.contains('\n'),
            "{host:?}"
        );
    }
}
