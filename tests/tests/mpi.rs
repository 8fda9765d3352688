//! Tests with an MPI library that this project did not write: Intel MPI 2018 over DAPL, with
//! mpi4py's benchmarks and mpi4py's own tests. `cargo xtask test --all` installs both in the target
//! directory and sets `mpi=` in `OPENDAT_TEST` to the place.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use libtest_mimic::Arguments;
use opendat_tests::{
    Dist, PROVIDERS, Provider, Registry, Running, Skip, Stop, c_preload, enter_own_network, trial,
};

/// What the ranks of an MPI job do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    /// A message goes round all ranks, a hundred times.
    Ring,
    /// Messages of all sizes go back and forth between two ranks.
    PingPong,
    /// The ranks run mpi4py's tests.
    Suite,
    /// The ranks accumulate, put and get up to this many octets at once in each other's memory.
    OneSided { octets: u32 },
}

struct Case {
    name: String,
    /// The DAT library that Intel MPI loads: `DAT1` or `DAT2`.
    library: &'static str,
    ranks: usize,
    job: Job,
    /// Settings of Intel MPI in addition to those of every case.
    settings: Vec<(&'static str, &'static str)>,
    /// Whether the ranks are divided between two hosts by name. Both names are this host, but ranks
    /// on different hosts do not share memory.
    two_hosts: bool,
    /// Whether the ranks use datagrams.
    datagrams: bool,
}

/// A setting with two values. Each value has a name, which is a part of a case's name, and the
/// variables that it sets.
struct Choice([(&'static str, &'static [(&'static str, &'static str)]); 2]);

const WAITING: Choice = Choice([("polling", &[]), ("asleep", &[("I_MPI_WAIT_MODE", "1")])]);
const CONNECTING: Choice = Choice([
    ("on_demand", &[("I_MPI_DYNAMIC_CONNECTION", "1")]),
    ("at_once", &[("I_MPI_DYNAMIC_CONNECTION", "0")]),
]);
const RENDEZVOUS: Choice = Choice([
    ("by_write", &[("I_MPI_DAPL_RDMA_RNDV_WRITE", "1")]),
    ("by_read", &[("I_MPI_DAPL_RDMA_RNDV_WRITE", "0")]),
]);
/// The limit between small messages, which are copied, and large ones, which use a rendezvous.
const COPYING: Choice = Choice([
    ("copied", &[("I_MPI_DAPL_DIRECT_COPY_THRESHOLD", "262144")]),
    ("not_copied", &[("I_MPI_DAPL_DIRECT_COPY_THRESHOLD", "256")]),
]);
/// The largest accumulate that Intel MPI can do while its ranks sleep, unless it copies messages of
/// this size. It sends a larger accumulate in parts, and its message for a part lacks the end, with
/// the memory's key and size (docs/mpi.md).
const LARGEST_ACCUMULATE_ASLEEP: u32 = 262_144;
/// The settings with which ranks use datagrams: the name of this way in a case's name, and the
/// variables. The adapter's name follows in [`Case::command`].
const DATAGRAMS: (&str, &[(&str, &str)]) = ("datagrams", &[("I_MPI_DAPL_UD", "1")]);
const LIBRARIES: [(&str, &str); 2] = [("udapl_2_0", DAT2), ("udapl_1_2", DAT1)];

/// The settings with which mpi4py's tests run; rings and ping-pongs run with all settings. The
/// columns are: adapter, library, ranks, and, by index, the values of [`WAITING`], [`CONNECTING`]
/// and [`RENDEZVOUS`]. Each pair of settings in different columns occurs in some row, with one
/// exception: four ranks that poll have not been seen to finish on two processors.
const SUITES: &[(&str, usize, &str, usize, usize, usize)] = &[
    ("tcp-emu", 0, "2", 0, 0, 0),
    ("softroce", 1, "4", 1, 0, 1),
    ("tcp-emu", 1, "2", 0, 1, 1),
    ("softroce", 1, "2", 1, 1, 0),
    ("tcp-emu", 0, "4", 1, 1, 0),
    ("softroce", 0, "2", 0, 0, 1),
];

/// Returns the test cases over the adapter of one provider.
fn cases(provider: &Provider) -> Vec<Case> {
    let ia = provider.ia;
    let mut cases = Vec::new();
    // The extension for datagrams belongs to uDAPL 2.0.
    if provider.datagrams {
        let one_sided = Job::OneSided { octets: 4 * LARGEST_ACCUMULATE_ASLEEP };
        for (job, ranks) in [
            (Job::Ring, "2"),
            (Job::Ring, "4"),
            (Job::PingPong, "2"),
            (one_sided, "2"),
            (Job::Suite, "2"),
        ] {
            let case = Case::new(job, &LIBRARIES[0], ranks, &[&DATAGRAMS]);
            cases.push(Case { datagrams: true, ..case });
        }
    }
    for library in &LIBRARIES {
        for waiting in &WAITING.0 {
            for connecting in &CONNECTING.0 {
                for ranks in ["2", "4"] {
                    cases.push(Case::new(Job::Ring, library, ranks, &[waiting, connecting]));
                }
            }
            for rendezvous in &RENDEZVOUS.0 {
                cases.push(Case::new(Job::PingPong, library, "2", &[waiting, rendezvous]));
            }
        }
    }
    for copying in &COPYING.0 {
        for rendezvous in &RENDEZVOUS.0 {
            cases.push(Case::new(Job::PingPong, &LIBRARIES[0], "2", &[copying, rendezvous]));
        }
    }
    for library in &LIBRARIES {
        for ranks in ["2", "4"] {
            let ways: [(&[_], u32); 3] = [
                (&[&WAITING.0[0]], 4 * LARGEST_ACCUMULATE_ASLEEP),
                (&[&WAITING.0[1]], LARGEST_ACCUMULATE_ASLEEP),
                (&[&WAITING.0[1], &COPYING.0[0]], 4 * LARGEST_ACCUMULATE_ASLEEP),
            ];
            // Four ranks that poll need minutes on two processors.
            let ways = ways.iter().skip(usize::from(ranks == "4"));
            cases.extend(
                ways.map(|&(ways, octets)| {
                    Case::new(Job::OneSided { octets }, library, ranks, ways)
                }),
            );
        }
    }
    // Ranks on one host would use shared memory and send no data over DAPL, so the two ranks of the
    // ping-pong are on different hosts.
    let shared: &[_] = &[("I_MPI_FABRICS", "shm:dapl"), ("I_MPI_DYNAMIC_CONNECTION", "0")];
    for library in &LIBRARIES {
        for (job, ranks) in [(Job::Ring, "4"), (Job::PingPong, "2")] {
            let case =
                Case::new(job, library, ranks, &[&("on_two_hosts_with_shared_memory", shared)]);
            cases.push(Case { two_hosts: true, ..case });
        }
    }
    for &(_, library, ranks, waiting, connecting, rendezvous) in
        SUITES.iter().filter(|row| row.0 == ia)
    {
        let ways = [&WAITING.0[waiting], &CONNECTING.0[connecting], &RENDEZVOUS.0[rendezvous]];
        cases.push(Case::new(Job::Suite, &LIBRARIES[library], ranks, &ways));
    }
    cases
}

const DAT2: &str = "libdat2.so.2";
const DAT1: &str = "libdat.so.1";

/// A test of mpi4py that also fails over this MPI library's own TCP, and is therefore left out.
/// `what_is_left_out_fails_over_the_librarys_own_tcp` verifies that.
struct ExcludedTest {
    module: &'static str,
    test: &'static str,
    /// Whether the test fails only when its whole module runs.
    whole_module: bool,
    ranks: &'static str,
}

const EXCLUDED_TESTS: &[ExcludedTest] = &[
    // These tests fail on one rank, which goes on to the next test while the others wait for it. A
    // run of the whole module hangs.
    ExcludedTest {
        module: "test_cco_buf",
        test: "TestCCOBufInplaceWorld.testReduceScatter",
        whole_module: false,
        ranks: "2",
    },
    ExcludedTest {
        module: "test_cco_nb_buf",
        test: "TestCCOBufInplaceWorld.testReduceScatter",
        whole_module: false,
        ranks: "2",
    },
    // With more than two ranks, a rank sometimes takes a message of the next test for a message of
    // this test.
    ExcludedTest {
        module: "test_dynproc",
        test: "TestDPM.testConnectAccept",
        whole_module: true,
        ranks: "4",
    },
];

/// The maximum number of runs of a test that fails only sometimes. The test is repeated until it
/// fails.
const MAX_TRIES: usize = 100;

/// The time limit of a job, after which it counts as hung. mpi4py's tests with four ranks on two
/// busy processors take minutes.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if !arguments.list {
        enter_own_network();
    }
    // The tests run one at a time, because each rank uses a processor while it waits.
    arguments.test_threads = Some(1);
    let trials = PROVIDERS.iter().flat_map(|provider| {
        let trial_of = move |case: Case| {
            trial(format!("mpi::{}::{}", provider.ia, case.name), move || case.run(provider))
        };
        cases(provider).into_iter().map(trial_of)
    });
    let not_ours = EXCLUDED_TESTS.iter().map(|left_out| {
        let name =
            format!("mpi::what_is_left_out_fails_over_the_librarys_own_tcp::{}", left_out.module);
        trial(name, move || fails_over_tcp(left_out))
    });
    opendat_tests::run(&arguments, trials.chain(not_ours).collect())
}

/// The paths of Intel MPI, Python and mpi4py's tests.
struct Installation {
    root: PathBuf,
}

impl Installation {
    fn locate() -> Result<Self, Skip> {
        let root = opendat_tests::setting("mpi").map(PathBuf::from);
        match root {
            Some(root) if root.join("bin/mpiexec.hydra").exists() => Ok(Self { root }),
            _ => Err(Skip(
                "no Intel MPI: `cargo xtask test --all` installs it if Python and pip are there"
                    .into(),
            )),
        }
    }

    fn tests(&self) -> PathBuf {
        self.root.join("mpi4py/test/main.py")
    }

    /// Returns the launcher's command line, without the program to launch.
    fn launcher(&self, home: &Path) -> Command {
        let mut command = Command::new(self.root.join("bin/mpiexec.hydra"));
        let path = format!(
            "{}:{}",
            self.root.join("bin").display(),
            std::env::var("PATH").unwrap_or_default()
        );
        command.env("PATH", path).env("I_MPI_ROOT", &self.root).env("TMPDIR", home).envs([
            ("I_MPI_FALLBACK", "0"),
            // With this setting, Intel MPI prints which provider it uses.
            ("I_MPI_DEBUG", "2"),
            ("I_MPI_HYDRA_IFACE", "lo"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ]);
        command
    }
}

/// Runs an excluded test over the MPI library's own TCP, where it must fail.
fn fails_over_tcp(left_out: &ExcludedTest) -> Result<(), Stop> {
    let (dist, mpi) = (Dist::locate()?, Installation::locate()?);
    let dir = tempfile::tempdir().expect("a temporary directory");
    // Any provider can be given here, because no adapter is opened.
    let registry = Registry::builtin(&dist, &PROVIDERS[0]);
    let mut last = String::new();
    for _ in 0..MAX_TRIES {
        let mut command = mpi.launcher(dir.path());
        command.env("I_MPI_FABRICS", "tcp").args(["-n", left_out.ranks]);
        command.arg(mpi.root.join("bin/python")).arg(mpi.tests()).args([
            "-v",
            "-i",
            left_out.module,
        ]);
        if !left_out.whole_module {
            command.args(["-k", left_out.test]);
        }
        let job = Running::start(left_out.module, command, &registry, Instant::now() + LIMIT)?;
        // When one rank has printed the failure, the job may hang.
        let failed = job.wait_for("FAIL");
        last = job.kill()?.text;
        if last.contains("DAPL") {
            return Err(format!("{} did not run over TCP\n{last}", left_out.module).into());
        }
        if failed.is_ok() {
            return Ok(());
        }
    }
    Err(format!("{}.{} passes over TCP\n{last}", left_out.module, left_out.test).into())
}

impl Case {
    fn new(
        job: Job,
        library: &(&'static str, &'static str),
        ranks: &str,
        ways: &[&(&'static str, &'static [(&'static str, &'static str)])],
    ) -> Case {
        let what = match job {
            Job::Ring => "ring",
            Job::PingPong => "ping_pong",
            Job::Suite => "tests_of_mpi4py",
            Job::OneSided { .. } => "one_sided",
        };
        let ways_named: Vec<&str> = ways.iter().map(|(name, _)| *name).collect();
        Case {
            name: format!("{what}::{}::{ranks}_ranks::{}", library.0, ways_named.join("::")),
            library: library.1,
            ranks: ranks.parse().expect("a number"),
            job,
            settings: ways.iter().flat_map(|(_, settings)| settings.iter().copied()).collect(),
            two_hosts: false,
            datagrams: false,
        }
    }

    fn run(&self, provider: &Provider) -> Result<(), Stop> {
        let (dist, mpi) = (Dist::locate()?, Installation::locate()?);
        let dir = tempfile::tempdir().expect("a temporary directory");
        let registry = match self.library {
            DAT1 => Registry::builtin_1_2(&dist, provider),
            _ => Registry::builtin(&dist, provider),
        };
        let preloaded = c_preload("memlock", dir.path())?;
        let mut registry = registry.with("LD_PRELOAD", preloaded.to_string_lossy());
        if self.two_hosts {
            // With this setting, each connection is logged at both ends.
            registry = registry.with("OPENDAT_LOG", "dat::cm=info");
        }
        let command = self.command(&mpi, provider, dir.path());
        let ended =
            Running::start(&self.name, command, &registry, Instant::now() + LIMIT)?.end()?;
        ended.succeeded(&self.name)?;
        self.judge(provider, &ended.text)
            .map_err(|why| format!("{}: {why}\n{}", self.name, ended.text))?;
        Ok(())
    }

    fn command(&self, mpi: &Installation, provider: &Provider, home: &Path) -> Command {
        let mut command = mpi.launcher(home);
        let settings = [
            ("I_MPI_FABRICS", "dapl"),
            ("I_MPI_DAPL_PROVIDER", provider.ia),
            ("I_MPI_DAT_LIBRARY", self.library),
        ];
        command.envs(settings).envs(self.settings.iter().copied());
        if self.datagrams {
            command.env("I_MPI_DAPL_UD_PROVIDER", provider.ia);
        }
        if self.two_hosts {
            // The launcher itself starts the processes of both hosts. The ranks use these names
            // only to identify their hosts.
            command.args([
                "-bootstrap",
                "fork",
                "-hosts",
                "one,two",
                "-ppn",
                &(self.ranks / 2).to_string(),
            ]);
        }
        command.args(["-n", &self.ranks.to_string()]).arg(mpi.root.join("bin/python"));
        match self.job {
            Job::OneSided { octets } => {
                let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
                command.arg(program.join("mpi_one_sided.py")).arg(octets.to_string())
            }
            Job::Ring => {
                command.args(["-m", "mpi4py.bench", "ringtest", "-l", "100", "-n", "1000"])
            }
            Job::PingPong => {
                let sizes = ["--min-size", "1", "--max-size", "4194304", "--loop", "200"];
                command.args(["-m", "mpi4py.bench", "pingpong"]).args(sizes)
            }
            Job::Suite => {
                command.arg(mpi.tests()).arg("-q");
                for ExcludedTest { module, test, .. } in EXCLUDED_TESTS {
                    command.args(["-x", &format!("*{module}.{test}")]);
                }
                &mut command
            }
        };
        command
    }

    /// Checks the output of a job that has succeeded.
    fn judge(&self, provider: &Provider, output: &str) -> Result<(), String> {
        // The text is counted in the whole output and not by line, because ranks that print at the
        // same time may share a line.
        let times = |what: &str| output.matches(what).count();
        let with = if self.datagrams { " with IB UD extension" } else { "" };
        let over = times(&format!("MPI startup(): DAPL provider {}{with}", provider.ia));
        if over != self.ranks {
            return Err(format!("{over} of {} ranks use {}{with}", self.ranks, provider.ia));
        }
        if self.two_hosts {
            // Each rank must be connected to each rank of the other host, and to no rank of its own
            // host.
            let expected = 2 * (self.ranks / 2) * (self.ranks / 2);
            let found = times(&format!("established ia={} ", provider.ia));
            if found != expected {
                return Err(format!("{found} ends of connections instead of {expected}"));
            }
        }
        let (expected, found) = match self.job {
            Job::Ring => (1, times("time for 100 loops = ")),
            // The output must have a header, and a line for each size from 1 octet to 4 MiB.
            Job::PingPong => (1 + 23, times(" ± ")),
            // Each rank prints this text after "OK" or "FAILED", and exits accordingly.
            Job::Suite => (self.ranks, times(" (skipped=")),
            Job::OneSided { .. } => (self.ranks, times("one-sided: right")),
        };
        if output.contains("FAILED") {
            return Err("a test of mpi4py failed".to_owned());
        }
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found} results instead of {expected}"))
        }
    }
}
