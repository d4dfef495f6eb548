//! A test network of several hosts, on Linux, that can be cut between any two of them.
//!
//! Each host is a network namespace. One more namespace, the hub, joins them by a bridge. In the
//! namespace of the test, the packet filters of the machine would apply to the bridge.
//!
//! Every host knows the hardware addresses of all the others from the start. A cut replaces them by
//! an address that no host has. So packets vanish, as on a broken network: no side gets an error,
//! and open connections stall. This needs neither a packet filter nor a kernel module.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::Write as _,
    net::Ipv4Addr,
    path::Path,
    process::{self, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, Result, bail};

/// The names of all namespaces begin with this, followed by the process id.
const PREFIX: &str = "lockkit-";
/// The same for links, whose names must be shorter than 16 bytes.
const LINK_PREFIX: &str = "lk";
const NAMESPACES: &str = "/run/netns";
const LINKS: &str = "/sys/class/net";
const SUBNET_ATTEMPTS: u32 = 100;
/// A locally administered address that no host has.
const NOBODY: &str = "02:00:00:00:00:00";

/// How many networks this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// The hosts, and the test.
#[derive(Debug)]
pub(crate) struct Network {
    name: String,
    link: String,
    subnet: [u8; 3],
    hosts: u8,
    cuts: BTreeSet<(u8, u8)>,
}

/// The test itself, as an end of a cut. Hosts count from 1.
pub(crate) const TEST: u8 = 0;

impl Network {
    /// Makes a network and removes it, to see whether that is possible.
    pub(crate) fn probe() -> Result<()> {
        let network = Self::new(1)?;
        let mut words = network.wrapper(1).into_iter().chain(["true".into()]);
        let program = words.next().context("no program")?;
        output(Command::new(program).args(words)).map(drop)
    }

    /// Whether networks can be made here. The text says why not.
    pub(crate) fn is_possible() -> Result<(), String> {
        Self::probe().map_err(|error| {
            format!(
                "servers can't be cut off from each other here, it takes Linux, root and iproute2: \
                 {error:#}"
            )
        })
    }

    /// Joins the namespaces of `hosts` new hosts with that of the test.
    pub(crate) fn new(hosts: u8) -> Result<Self> {
        remove_stale()?;
        let pid = process::id();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let network = Self {
            name: format!("{PREFIX}{pid}-{number}"),
            link: format!("{LINK_PREFIX}{pid}.{number}"),
            subnet: free_subnet(pid.wrapping_add(number.wrapping_mul(7919)))?,
            hosts,
            cuts: BTreeSet::new(),
        };
        // If the next step fails, the drop removes all that was made of the network.
        network.build()?;
        Ok(network)
    }

    /// The address of a host.
    pub(crate) fn addr(&self, host: u8) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, host + 1)
    }

    /// The words that go before a command to run it on a host.
    pub(crate) fn wrapper(&self, host: u8) -> Vec<OsString> {
        // Not by `ip netns exec`, because that also mounts file systems.
        vec![
            "nsenter".into(),
            format!("--net={NAMESPACES}/{}", self.namespace(host)).into(),
            "--".into(),
        ]
    }

    /// Lets every packet between two ends vanish.
    pub(crate) fn cut(&mut self, one: u8, other: u8) -> Result<()> {
        self.cuts.insert((one.min(other), one.max(other)));
        self.introduce()
    }

    /// Lets every packet between a host and the other hosts vanish.
    pub(crate) fn cut_off(&mut self, host: u8) -> Result<()> {
        for end in self.ends().filter(|&end| end != host && end != TEST) {
            self.cut(host, end)?;
        }
        Ok(())
    }

    /// Undoes every cut.
    pub(crate) fn heal(&mut self) -> Result<()> {
        self.cuts.clear();
        self.introduce()
    }

    /// Every end of the network.
    pub(crate) fn ends(&self) -> impl Iterator<Item = u8> + use<> {
        TEST..=self.hosts
    }

    fn build(&self) -> Result<()> {
        let hub = self.hub();
        let hosts = || self.ends().filter(|&end| end != TEST);
        let mut lines = vec![format!("netns add {hub}")];
        lines.extend(hosts().map(|host| format!("netns add {}", self.namespace(host))));
        ip(None, &lines)?;

        let mut lines =
            vec!["link add bridge type bridge".to_owned(), "link set bridge up".to_owned()];
        for host in hosts() {
            let name = self.namespace(host);
            let hardware = self.hardware(host);
            lines.push(format!(
                "link add port{host} type veth peer name eth0 address {hardware} netns {name}"
            ));
        }
        ip(Some(&hub), &lines)?;
        let device = self.device(TEST);
        let hardware = self.hardware(TEST);
        ip(
            None,
            &[format!(
                "link add {device} address {hardware} type veth peer name port{TEST} netns {hub}"
            )],
        )?;
        let plug = |end| format!("link set port{end} master bridge up");
        ip(Some(&hub), &self.ends().map(plug).collect::<Vec<_>>())?;

        for host in hosts() {
            self.hurry(host);
        }
        for end in self.ends() {
            let device = self.device(end);
            let up = [
                format!("address add {}/24 dev {device}", self.addr(end)),
                format!("link set {device} up"),
            ];
            // ZooKeeper also talks to itself.
            let own = (end != TEST).then(|| "link set lo up".to_owned());
            ip(self.namespace_of(end).as_deref(), &up.into_iter().chain(own).collect::<Vec<_>>())?;
        }
        self.introduce()
    }

    /// Makes a host's connections retry at least once a second, where the system can do that.
    /// Otherwise a connection that was cut for a while stays mute for nearly as long after the
    /// heal.
    fn hurry(&self, host: u8) {
        let mut words = self.wrapper(host).into_iter();
        let Some(program) = words.next() else { return };
        let script = "echo 1000 >/proc/sys/net/ipv4/tcp_rto_max_ms";
        let _ = output(Command::new(program).args(words).args(["sh", "-c", script]));
    }

    /// Gives every end the hardware addresses of the others: this is the whole state of the
    /// network.
    fn introduce(&self) -> Result<()> {
        for from in self.ends() {
            let lines = self.ends().filter(|&to| to != from).map(|to| {
                let is_cut = self.cuts.contains(&(from.min(to), from.max(to)));
                let hardware = if is_cut { NOBODY.to_owned() } else { self.hardware(to) };
                let device = self.device(from);
                format!(
                    "neigh replace {} lladdr {hardware} nud permanent dev {device}",
                    self.addr(to)
                )
            });
            ip(self.namespace_of(from).as_deref(), &lines.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    fn namespace(&self, host: u8) -> String {
        format!("{}-{host}", self.name)
    }

    /// `None` for the test's own namespace.
    fn namespace_of(&self, end: u8) -> Option<String> {
        (end != TEST).then(|| self.namespace(end))
    }

    fn device(&self, end: u8) -> &str {
        if end == TEST { &self.link } else { "eth0" }
    }

    fn hardware(&self, end: u8) -> String {
        let [_, b, c] = self.subnet;
        format!("02:00:00:{b:02x}:{c:02x}:{:02x}", end + 1)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A later process removes as stale what can't be removed now.
        let _ = ip(None, &[format!("link delete {}", self.link)]);
        for namespace in self.ends().filter_map(|end| self.namespace_of(end)).chain([self.hub()]) {
            let _ = ip(None, &[format!("netns delete {namespace}")]);
        }
    }
}

/// Removes what killed processes left behind.
fn remove_stale() -> Result<()> {
    for (folder, prefix, kind) in [(LINKS, LINK_PREFIX, "link"), (NAMESPACES, PREFIX, "netns")] {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| owner(name, prefix)) else { continue };
            if !Path::new("/proc").join(pid.to_string()).exists() {
                // Another process may be removing it, too.
                let _ = ip(None, &[format!("{kind} delete {}", name.display())]);
            }
        }
    }
    Ok(())
}

/// The process that made something with that name.
fn owner(name: &str, prefix: &str) -> Option<u32> {
    let (pid, _number) = name.strip_prefix(prefix)?.split_once(['.', '-'])?;
    pid.parse().ok()
}

/// The first three bytes of an unused private network. Each process starts its search at a
/// different one.
fn free_subnet(start: u32) -> Result<[u8; 3]> {
    for step in 0..SUBNET_ATTEMPTS {
        let [_, _, b, c] = start.wrapping_add(step).to_be_bytes();
        // People mostly use the lower half.
        let b = b | 0x80;
        let routes = output(Command::new("ip").args([
            "-4",
            "route",
            "show",
            "root",
            &format!("10.{b}.{c}.0/24"),
        ]))?;
        if routes.is_empty() {
            return Ok([10, b, c]);
        }
    }
    bail!("no private network is free in {SUBNET_ATTEMPTS} attempts")
}

/// Runs the lines as commands of `ip`, in a namespace.
fn ip(namespace: Option<&str>, lines: &[String]) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(namespace.iter().flat_map(|name| ["-n", name]));
    let mut child = command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| cant_start("ip"))?;
    let mut stdin = child.stdin.take().context("ip has no input")?;
    stdin.write_all((lines.join("\n") + "\n").as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "ip: {}; it was asked:\n{}",
            String::from_utf8_lossy(&output.stderr).trim(),
            lines.join("\n")
        );
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| cant_start(&program))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn cant_start(program: &str) -> String {
    let package = if program == "ip" { "iproute2" } else { "util-linux" };
    format!("{program} can't be started; Debian's package is {package}")
}

/// For tests: false where networks can't be made, with a message past the test harness.
#[cfg(test)]
pub(crate) fn possible() -> bool {
    let possible = Network::probe();
    if let Err(reason) = &possible {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED, because network namespaces are not available: {reason:#}"
        );
    }
    possible.is_ok()
}

#[cfg(test)]
mod tests {
    use std::{
        net::{SocketAddr, TcpListener, TcpStream},
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    fn leftovers(name: &str, link: &str) -> bool {
        let namespaces = output(Command::new("ip").args(["netns", "list"])).unwrap();
        namespaces.contains(name) || Path::new(LINKS).join(link).exists()
    }

    /// A network as a killed process leaves it.
    fn abandoned() -> (String, String) {
        let mut owner = Command::new("sleep").arg("1000").spawn().unwrap();
        let name = format!("{PREFIX}{}-0", owner.id());
        let link = format!("{LINK_PREFIX}{}.0", owner.id());
        let hub = format!("{name}-hub");
        let made = ip(
            None,
            &[
                format!("netns add {hub}"),
                format!("link add {link} type veth peer name port0 netns {hub}"),
            ],
        );
        owner.kill().unwrap();
        owner.wait().unwrap();
        made.unwrap();
        (name, link)
    }

    #[test]
    fn networks_of_dropped_handles_and_killed_processes_are_removed() {
        if !possible() {
            return;
        }
        let (old_name, old_link) = abandoned();
        let network = Network::new(2).unwrap();
        // Another test program may be removing it, too. Then it is gone when that program is done.
        let start = Instant::now();
        while leftovers(&old_name, &old_link) {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "what was left behind is not removed"
            );
            thread::sleep(Duration::from_millis(10));
        }
        let name = network.name.clone();
        let link = network.link.clone();
        assert!(leftovers(&name, &link));
        drop(network);
        assert!(!leftovers(&name, &link));
    }

    #[test]
    fn a_cut_host_receives_nothing_until_the_heal_and_other_hosts_do() {
        if !possible() {
            return;
        }
        let mut network = Network::new(2).unwrap();
        let listener = TcpListener::bind((network.addr(TEST), 0)).unwrap();
        let target = listener.local_addr().unwrap();
        let reaches = |network: &Network, host: u8| {
            let script = format!("exec 3<>/dev/tcp/{}/{}", target.ip(), target.port());
            let mut words = network.wrapper(host).into_iter();
            let mut command = Command::new(words.next().unwrap());
            command.args(words).args(["timeout", "5", "bash", "-c", &script]);
            command.status().unwrap().success()
        };
        assert!(reaches(&network, 1) && reaches(&network, 2));
        network.cut(1, TEST).unwrap();
        assert!(!reaches(&network, 1), "a cut end reaches the other");
        assert!(reaches(&network, 2), "a cut reaches further than it should");
        // It is no refusal: no answer comes back.
        let silent = SocketAddr::from((network.addr(1), target.port()));
        let error = TcpStream::connect_timeout(&silent, Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        network.heal().unwrap();
        assert!(reaches(&network, 1));
        let error = TcpStream::connect_timeout(&silent, Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn the_owner_of_a_leftover_is_read_from_its_name() {
        assert_eq!(owner("lockkit-4194304-12-hub", PREFIX), Some(4_194_304));
        assert_eq!(owner("lk4194304.99", LINK_PREFIX), Some(4_194_304));
        assert_eq!(owner("lkmine", LINK_PREFIX), None);
        assert_eq!(owner("eth0", LINK_PREFIX), None);
    }
}
