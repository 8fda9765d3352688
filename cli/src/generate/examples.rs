//! The examples on the manual pages. `cli/tests/manual.rs` runs each of them.

/// An example: what it does, as a sentence, and the lines that a user types in a shell.
pub(super) struct Example {
    pub(super) purpose: &'static str,
    pub(super) lines: &'static [&'static str],
}

/// Returns the examples of a command.
pub(super) fn of(command: &str) -> &'static [Example] {
    let found = EXAMPLES.iter().find(|(name, _)| *name == command);
    found.map_or(&[], |(_, examples)| examples)
}

const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "dat",
        &[
            Example {
                purpose: "Shows that softroce moves data on this host:",
                lines: &["dat ping --adapter softroce --count 3"],
            },
            Example {
                purpose: "Tests the network between two hosts. On the first host:",
                lines: &["dat serve --port 7480 &"],
            },
            Example {
                purpose: "On the other host, with the address of the first one:",
                lines: &["dat ping 127.0.0.1:7480 --count 3"],
            },
        ],
    ),
    (
        "list",
        &[
            Example { purpose: "Lists the entries that open:", lines: &["dat list --usable"] },
            Example {
                purpose: "Opens the entries whose name contains softroce, and prints all details:",
                lines: &["dat list softroce --json"],
            },
        ],
    ),
    (
        "doctor",
        &[Example {
            purpose: "Keeps the findings in a file, and says whether there is a problem:",
            lines: &["dat doctor > findings.txt || echo 'there is a problem, see findings.txt'"],
        }],
    ),
    (
        "query",
        &[
            Example { purpose: "Prints the attributes of tcp-emu:", lines: &["dat query tcp-emu"] },
            Example {
                purpose: "Prints the maximum size of a message over softroce:",
                lines: &["dat query softroce | grep max_message_size"],
            },
        ],
    ),
    (
        "check",
        &[Example {
            purpose: "Checks a file before programs use it:",
            lines: &["dat check my.conf && export DAT_OVERRIDE=$PWD/my.conf"],
        }],
    ),
    (
        "convert",
        &[Example {
            purpose: "Writes the entries of a dat.conf as TOML, and back:",
            lines: &["dat convert my.conf > my.toml", "dat convert my.toml > my-copy.conf"],
        }],
    ),
    (
        "register",
        &[
            Example {
                purpose: "Adds a tcp-emu that serves only the loopback device, in a file of this \
                          user:",
                lines: &["dat register --file my.conf tcp-lo libdat_tcp_emu.so lo"],
            },
            Example {
                purpose: "Replaces this entry by one with checksums:",
                lines: &[
                    "dat register --file my.conf --replace tcp-lo libdat_tcp_emu.so 'lo crc=on'",
                ],
            },
        ],
    ),
    (
        "unregister",
        &[Example {
            purpose: "Removes the entries with the name tcp-lo from a file:",
            lines: &[
                "dat register --file my.conf tcp-lo libdat_tcp_emu.so lo",
                "dat unregister --file my.conf tcp-lo",
            ],
        }],
    ),
    (
        "ping",
        &[
            Example {
                purpose: "Measures 1,000 RDMA reads of 4 KiB, one after the other:",
                lines: &["dat ping --operation read --size 4K --count 1000 --interval 0 --quiet"],
            },
            Example {
                purpose: "Pings over softroce, with one packet of 100 lost:",
                lines: &["OPENDAT_PARAMS=net=loss=1% dat ping --adapter softroce --count 5"],
            },
        ],
    ),
    (
        "serve",
        &[Example {
            purpose: "Serves softroce on this host only, and pings it:",
            lines: &[
                "dat serve --adapter softroce --bind 127.0.0.1 --port 7480 &",
                "dat ping 127.0.0.1:7480 --adapter softroce --count 3",
            ],
        }],
    ),
    (
        "bench",
        &[Example {
            purpose: "Compares two adapters, and writes a page with plots:",
            lines: &["dat bench -o send -s 64,64K --vs softroce --rounds 1 --html a.html"],
        }],
    ),
    (
        "conformance",
        &[
            Example {
                purpose: "Tests one function over softroce, and writes the result for a CI system:",
                lines: &["dat conformance dat_evd_wait --provider softroce --junit result.xml"],
            },
            Example {
                purpose: "Prints what the standard requires of a function:",
                lines: &["dat conformance dat_psp_create --list"],
            },
            Example {
                purpose: "Explains a case, and prints which cases cause which return values of a \
                          function:",
                lines: &[
                    "dat conformance --explain dat_psp_create/backlog",
                    "dat conformance --returns dat_psp_create",
                ],
            },
        ],
    ),
    (
        "top",
        &[Example {
            purpose: "Shows what the adapters of a program have done so far:",
            lines: &["OPENDAT_PARAMS=stats=on ./server &", "dat top --once $!"],
        }],
    ),
    (
        "trace",
        &[
            Example {
                purpose: "Logs the connections and failures of a program:",
                lines: &["dat trace --log info dat ping --count 1"],
            },
            Example {
                purpose: "Logs only how connections begin and end, as JSON in a file:",
                lines: &["dat trace --log dat::cm=info --json dat ping --count 1 2> trace.json"],
            },
        ],
    ),
    (
        "completions",
        &[Example {
            purpose: "Installs the completions of this user's bash:",
            lines: &[
                "mkdir -p ~/.local/share/bash-completion/completions",
                "dat completions bash > ~/.local/share/bash-completion/completions/dat",
            ],
        }],
    ),
];
