//! An MPI library that nobody here wrote: Intel MPI 2018 over DAPL, with mpi4py's benchmarks and its own tests. `cargo xtask test`
//! installs both in the target directory, and says where in `OPENDAT_MPI`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::Arguments;
use opendat_tests::{
    Dist, PROVIDERS, Provider, Registry, Running, Skip, Stop, c_preload, enter_own_network, trial,
};

/// What the ranks of a job do.
#[derive(Clone, Copy)]
enum Job {
    /// A message goes round, a hundred times.
    Ring,
    /// Messages of all sizes go to and fro between two.
    PingPong,
    /// mpi4py's tests.
    Suite,
}

struct Case {
    name: &'static str,
    library: &'static str,
    ranks: usize,
    job: Job,
    /// Settings of Intel MPI besides those of every case.
    settings: &'static [(&'static str, &'static str)],
}

const fn case(
    name: &'static str,
    library: &'static str,
    ranks: usize,
    job: Job,
    settings: &'static [(&'static str, &'static str)],
) -> Case {
    Case { name, library, ranks, job, settings }
}

const CASES: &[Case] = &[
    case("ring_of_2", DAT2, 2, Job::Ring, &[]),
    case("ring_of_4", DAT2, 4, Job::Ring, &[]),
    case("ring_of_2_over_udapl_1_2", DAT1, 2, Job::Ring, &[]),
    case("ring_of_4_over_udapl_1_2", DAT1, 4, Job::Ring, &[]),
    case("ring_of_4_that_wait_asleep", DAT2, 4, Job::Ring, &[("I_MPI_WAIT_MODE", "1")]),
    case("ring_of_4_connected_on_demand", DAT2, 4, Job::Ring, &[("I_MPI_DYNAMIC_CONNECTION", "1")]),
    case("ring_of_4_connected_at_once", DAT2, 4, Job::Ring, &[("I_MPI_DYNAMIC_CONNECTION", "0")]),
    case("ping_pong", DAT2, 2, Job::PingPong, &[]),
    case("ping_pong_over_udapl_1_2", DAT1, 2, Job::PingPong, &[]),
    case("ping_pong_that_waits_asleep", DAT2, 2, Job::PingPong, &[("I_MPI_WAIT_MODE", "1")]),
    case("ping_pong_by_rdma_read", DAT2, 2, Job::PingPong, &[("I_MPI_DAPL_RDMA_RNDV_WRITE", "0")]),
    case("ping_pong_by_rdma_write", DAT2, 2, Job::PingPong, &[("I_MPI_DAPL_RDMA_RNDV_WRITE", "1")]),
    case("ping_pong_copied", DAT2, 2, Job::PingPong, &[("I_MPI_DAPL_DIRECT_COPY_THRESHOLD", "262144")]),
    case("ping_pong_not_copied", DAT2, 2, Job::PingPong, &[("I_MPI_DAPL_DIRECT_COPY_THRESHOLD", "256")]),
    case("ring_of_4_with_shared_memory", DAT2, 4, Job::Ring, &[("I_MPI_FABRICS", "shm:dapl")]),
    case("tests_of_mpi4py_with_2_ranks", DAT2, 2, Job::Suite, &[]),
    // Four that poll on two processors would take minutes.
    case("tests_of_mpi4py_with_4_ranks_that_wait_asleep", DAT2, 4, Job::Suite, &[("I_MPI_WAIT_MODE", "1")]),
    case("tests_of_mpi4py_over_udapl_1_2", DAT1, 2, Job::Suite, &[]),
];

const DAT2: &str = "libdat2.so.2";
const DAT1: &str = "libdat.so.1";

/// What hangs over this MPI library's own TCP, too, and is left out.
const NOT_OURS: &[&str] = &["test_cco_buf", "test_cco_nb_buf"];

/// A job that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(300);

fn main() {
    let mut arguments = Arguments::from_args();
    if !arguments.list {
        enter_own_network();
    }
    // Each rank takes a processor while it waits.
    arguments.test_threads = Some(1);
    let trials = PROVIDERS.iter().flat_map(|provider| {
        CASES.iter().map(|case| trial(format!("mpi::{}::{}", provider.ia, case.name), || case.run(provider)))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// Where Intel MPI, Python and mpi4py's tests are.
struct Installation {
    root: PathBuf,
}

impl Installation {
    fn locate() -> Result<Self, Skip> {
        let root = std::env::var_os("OPENDAT_MPI").map(PathBuf::from);
        match root {
            Some(root) if root.join("bin/mpiexec.hydra").exists() => Ok(Self { root }),
            _ => Err(Skip(
                "no Intel MPI: `cargo xtask test` installs it, where there is Python with pip".into(),
            )),
        }
    }

    fn tests(&self) -> PathBuf {
        self.root.join("mpi4py/test/main.py")
    }
}

impl Case {
    fn run(&self, provider: &Provider) -> Result<(), Stop> {
        let (dist, mpi) = (Dist::locate()?, Installation::locate()?);
        let dir = tempfile::tempdir().expect("a temporary directory");
        let registry = match self.library {
            DAT1 => Registry::builtin_1_2(&dist, provider),
            _ => Registry::builtin(&dist, provider),
        };
        let preloaded = c_preload("memlock", dir.path())?;
        let registry = registry.with("LD_PRELOAD", preloaded.to_string_lossy());
        let command = self.command(&mpi, provider, dir.path());
        let ended = Running::start(self.name, command, &registry, Instant::now() + LIMIT)?.end()?;
        ended.succeeded(self.name)?;
        self.judge(provider, &ended.text).map_err(|why| format!("{}: {why}\n{}", self.name, ended.text))?;
        Ok(())
    }

    fn command(&self, mpi: &Installation, provider: &Provider, home: &Path) -> Command {
        let mut command = Command::new(mpi.root.join("bin/mpiexec.hydra"));
        let path =
            format!("{}:{}", mpi.root.join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let settings = [
            ("I_MPI_FABRICS", "dapl"),
            ("I_MPI_FALLBACK", "0"),
            ("I_MPI_DAPL_PROVIDER", provider.ia),
            ("I_MPI_DAT_LIBRARY", self.library),
            // It says which provider it uses.
            ("I_MPI_DEBUG", "2"),
            ("I_MPI_HYDRA_IFACE", "lo"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ];
        command
            .env("PATH", path)
            .env("I_MPI_ROOT", &mpi.root)
            .env("TMPDIR", home)
            .envs(settings)
            .envs(self.settings.iter().copied())
            .args(["-n", &self.ranks.to_string()])
            .arg(mpi.root.join("bin/python"));
        match self.job {
            Job::Ring => command.args(["-m", "mpi4py.bench", "ringtest", "-l", "100", "-n", "1000"]),
            Job::PingPong => {
                let sizes = ["--min-size", "1", "--max-size", "4194304", "--loop", "200"];
                command.args(["-m", "mpi4py.bench", "pingpong"]).args(sizes)
            }
            Job::Suite => {
                command.arg(mpi.tests()).arg("-q");
                NOT_OURS.iter().fold(&mut command, |command, module| command.args(["-e", module]))
            }
        };
        command
    }

    /// What a job that has succeeded must have said.
    fn judge(&self, provider: &Provider, said: &str) -> Result<(), String> {
        // What ranks say at the same time may share a line.
        let times = |what: &str| said.matches(what).count();
        let over = times(&format!("MPI startup(): DAPL provider {}", provider.ia));
        if over != self.ranks {
            return Err(format!("{over} of {} ranks use {}", self.ranks, provider.ia));
        }
        let (asked, found) = match self.job {
            Job::Ring => (1, times("time for 100 loops = ")),
            // The head, and a line for each size from 1 to 4 MiB.
            Job::PingPong => (1 + 23, times(" ± ")),
            Job::Suite => (self.ranks, times("OK (skipped=")),
        };
        if found == asked { Ok(()) } else { Err(format!("{found} results, where there are to be {asked}")) }
    }
}
