//! Runs Debian's unmodified programs over this project's library and each of its providers: server
//! and client on one host over loopback, and on two hosts (`between`). On request it also runs them
//! with a guest (`guest`), and with the project's packages in a clean Debian (`packages`). The
//! short run has each program once.
//!
//! Each program runs under three registries (see `Registry`): this project's with its built-in
//! entry, this project's with the loadable provider named in dat.conf, and Debian's own
//! libdat2.so.2 with the same provider; dtest also runs under valgrind. The verdict comes from the
//! exit code and the output, because several of these programs always exit with 0.
#![forbid(unsafe_code)]

mod between;
mod connections;
mod dapltest;
mod datagrams;
mod dtest;
mod dtestx;
mod guest;
mod host;
mod networks;
mod outages;
mod packages;
mod pair;
mod rendezvous;
mod router;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use opendat_tests::{
    Dist, PROVIDERS, Provider, Registry, Skip, Stop, enter_network_of_all_users, enter_own_network,
    is_short_run, trial,
};

/// One run of a program: the name of the run, and the function that runs and judges the program.
struct Case {
    name: String,
    run: Run,
}

type Run = Box<dyn Fn(&Registry) -> Result<(), Stop> + Send>;

impl Case {
    fn new(
        name: impl Into<String>,
        run: impl Fn(&Registry) -> Result<(), Stop> + Send + 'static,
    ) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    fn trial(self, prefix: &str, registry: Arc<Result<Registry, Skip>>) -> Trial {
        let name = format!("{prefix}::{}", self.name);
        trial(name, move || match registry.as_ref() {
            Ok(registry) => (self.run)(registry),
            Err(skip) => Err(skip.clone().into()),
        })
    }
}

fn main() -> ExitCode {
    if guest::is_relay() {
        return guest::relay();
    }
    let mut arguments = Arguments::from_args();
    let packages = packages::made();
    if !arguments.list {
        // Installing packages needs all users of the host, so the namespace keeps them.
        if packages.is_some() { enter_network_of_all_users() } else { enter_own_network() }
    }
    // Trials run one at a time: dtest's ports are fixed, and polling programs need the processors
    // for themselves.
    arguments.test_threads = Some(1);

    let dist = Dist::locate();
    let trials = match (guest::image(), packages) {
        (Some(image), _) => guest::trials(&image, &dist, &arguments),
        (None, Some(packages)) => packages::trials(&packages, &dist),
        (None, None) => {
            let routed = if is_short_run() { Vec::new() } else { router::trials(&dist) };
            PROVIDERS.iter().flat_map(|provider| over(provider, &dist)).chain(routed).collect()
        }
    };
    opendat_tests::run(&arguments, trials)
}

fn over(provider: &'static Provider, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let under = |name: &str, make: networks::MakeRegistry, cases: Vec<Case>| {
        let registry = Arc::new(dist.clone().and_then(|dist| make(&dist, provider)));
        let prefix = format!("{}::{name}", provider.ia);
        cases.into_iter().map(move |case| case.trial(&prefix, Arc::clone(&registry)))
    };
    let builtin = |dist: &Dist, provider: &Provider| Ok(Registry::builtin(dist, provider));
    if is_short_run() {
        return under("builtin", builtin, each_program_once()).collect();
    }
    let plugin = |dist: &Dist, provider: &Provider| Ok(Registry::plugin(dist, provider));
    let on_wire =
        |dist: &Dist, provider: &Provider| Ok(Registry::plugin_at(dist, provider, host::WIRE));
    let impatient = |dist: &Dist, provider: &Provider| {
        Ok(Registry::plugin_at(
            dist,
            provider,
            &format!("{} {}", host::WIRE, outages::SHORT_TIMEOUT),
        ))
    };
    let small_mtu = |dist: &Dist, provider: &Provider| {
        Ok(Registry::builtin(dist, provider).with_params(datagrams::SMALL_MTU))
    };
    let networks = networks::NETWORKS.iter().filter(|_| provider.packets);
    under("builtin", builtin, every_case(provider))
        .chain(under("valgrind", builtin, vec![dtest::under_valgrind()]))
        .chain(under("plugin", plugin, some_cases()))
        .chain(under("small_mtu", small_mtu, datagrams::with_small_mtu(provider)))
        .chain(under("debian", Registry::debian, every_case_debian_survives(provider)))
        .chain(under("hosts", on_wire, between::cases(provider)))
        .chain(under("outages", on_wire, outages::with_default_params(provider)))
        .chain(under("outages", impatient, outages::permanent()))
        .chain(networks.flat_map(|&(name, make)| under(name, make, networks::cases())))
        .collect()
}

fn every_case(provider: &Provider) -> Vec<Case> {
    let mut cases = dtest::cases();
    cases.extend(dapltest::cases());
    cases.push(dapltest::queryinfo("fft_queryinfo", dapltest::QUERYINFO_CASES));
    cases.extend(connections::cases());
    cases.extend(dtestx::cases(provider));
    cases.extend(datagrams::cases(provider));
    cases
}

fn each_program_once() -> Vec<Case> {
    let mut cases = some_cases();
    cases.extend(connections::each_program_once());
    cases
}

/// Returns one case of each program. The loadable provider contains the same code as the built-in
/// one, so these cases only test that programs reach the provider.
fn some_cases() -> Vec<Case> {
    vec![dtest::plain(), dapltest::small_transaction(), dapltest::quit(), dtestx::plain()]
}

/// Returns the cases that run over Debian's libdat2. That library calls through any handle that it
/// gets. Therefore the cases of queryinfo that pass the IA handle (a small integer) to a function
/// of another object crash in libdat2, before the provider is called.
fn every_case_debian_survives(provider: &Provider) -> Vec<Case> {
    let mut cases = dtest::cases();
    cases.extend(dapltest::cases());
    let survived =
        dapltest::QUERYINFO_CASES.iter().copied().filter(|case| ![13, 15].contains(case));
    cases.push(dapltest::queryinfo("fft_queryinfo", &survived.collect::<Vec<_>>()));
    cases.extend(connections::cases());
    cases.extend(dtestx::cases(provider));
    cases.extend(datagrams::cases(provider));
    cases
}
