//! Tests of the grammar, as a table: each text, its result, and the result of OFED's parser.

use std::path::Path;

use super::{parse, write};
use crate::entry::{Entry, Space};

/// A text and its expected result: the entries as lines of [`super::Line`], and the errors without
/// the file name.
struct Case {
    what: &'static str,
    text: &'static str,
    entries: &'static [&'static str],
    errors: &'static [&'static str],
}

const GOOD: &str = r#"good u2.0 nonthreadsafe default lib.so dapl.2.0 "" """#;

const CASES: &[Case] = &[
    Case {
        what: "fields may be separated by tabs",
        text: "good\tu2.0\t nonthreadsafe\tdefault\tlib.so\tdapl.2.0\t\"\"\t\"\"\n",
        entries: &[GOOD],
        errors: &[],
    },
    Case {
        what: "blanks at the beginning and end of a line are ignored",
        text: " \t good u2.0 nonthreadsafe default lib.so dapl.2.0 \"\" \"\" \t\n",
        entries: &[GOOD],
        errors: &[],
    },
    Case {
        what: "blank lines are ignored",
        text: "\n   \n\t\ngood u2.0 nonthreadsafe default lib.so dapl.2.0 \"\" \"\"\n\n",
        entries: &[GOOD],
        errors: &[],
    },
    Case {
        what: "lines that are comments are ignored",
        text: "# good u2.0\n  #\n#",
        entries: &[],
        errors: &[],
    },
    Case {
        what: "a comment may follow the fields; # inside a word or quotes begins no comment",
        text: "go#od u2.0 nonthreadsafe default lib.so dapl.2.0 \"a #1\" \"\"# to the end\n",
        entries: &[r##"go#od u2.0 nonthreadsafe default lib.so dapl.2.0 "a #1" """##],
        errors: &[],
    },
    Case {
        what: "the last line may end without a newline",
        text: "good u2.0 nonthreadsafe default lib.so dapl.2.0 \"\" \"\"",
        entries: &[GOOD],
        errors: &[],
    },
    Case {
        what: "any field may be quoted, and no blank needs to follow the closing quote",
        text: "\"good\"\"u2.0\"\"nonthreadsafe\" \"default\" \"lib.so\" \"dapl.2.0\" \"\"\"\"\n",
        entries: &[GOOD],
        errors: &[],
    },
    Case {
        what: "a backslash escapes a quote inside quotes",
        text: r#"good u2.0 nonthreadsafe default lib.so dapl.2.0 "a \"b\" c" """#,
        entries: &[r#"good u2.0 nonthreadsafe default lib.so dapl.2.0 "a \"b\" c" """#],
        errors: &[],
    },
    Case {
        what: "a backslash escapes a backslash in quotes; any other one stands for itself",
        text: r#"go\od u2.0 nonthreadsafe default lib.so dapl.2.0 "a\\b\c" """#,
        entries: &[r#""go\\od" u2.0 nonthreadsafe default lib.so dapl.2.0 "a\\b\\c" """#],
        errors: &[],
    },
    Case {
        what: "entries for uDAPL 1.2 are accepted; u2 means u2.0",
        text: "a u1.2 threadsafe default lib.so dapl.1.2 x y\n\
               b u2 threadsafe default lib.so dapl.1.2 x y\n",
        entries: &[
            r#"a u1.2 threadsafe default lib.so dapl.1.2 "x" "y""#,
            r#"b u2.0 threadsafe default lib.so dapl.1.2 "x" "y""#,
        ],
        errors: &[],
    },
    Case {
        what: "a kernel entry is parsed, although no user-space consumer can open it",
        text: "good k1.2 nonthreadsafe default lib.so dapl.2.0 \"\" \"\"\n",
        entries: &[r#"good k1.2 nonthreadsafe default lib.so dapl.2.0 "" """#],
        errors: &[],
    },
    Case {
        what: "a nondefault entry is parsed, although no consumer can open it",
        text: "good u2.0 nonthreadsafe nondefault lib.so dapl.2.0 \"\" \"\"\n",
        entries: &[r#"good u2.0 nonthreadsafe nondefault lib.so dapl.2.0 "" """#],
        errors: &[],
    },
    Case {
        what: "two entries with the same name are both kept, in the order of the file",
        text: "a u2.0 threadsafe default one.so d.2.0 x y\na u2.0 threadsafe default two.so d.2.0 \
               x y\n",
        entries: &[
            r#"a u2.0 threadsafe default one.so d.2.0 "x" "y""#,
            r#"a u2.0 threadsafe default two.so d.2.0 "x" "y""#,
        ],
        errors: &[],
    },
    Case {
        what: "a line with seven fields is an error",
        text: "good u2.0 nonthreadsafe default lib.so dapl.2.0 x # y",
        entries: &[],
        errors: &[
            "1:51: the line ends after 7 of 8 fields; expected the platform parameters (\"\" for \
             none)",
        ],
    },
    Case {
        what: "a line with nine fields is an error",
        text: "good u2.0 nonthreadsafe default lib.so dapl.2.0 mlx5 0 \"\"",
        entries: &[],
        errors: &[
            "1:56: unexpected \"\" after the eighth field; quote a value that contains blanks",
        ],
    },
    Case {
        what: "invalid API versions are errors",
        text: "a 2.0 t d l p.1.0 x y\n\
               a u2.0x t d l p.1.0 x y\n\
               a u2.0.1 t d l p.1.0 x y\n\
               a U2.0 t d l p.1.0 x y\n\
               a u-2.0 t d l p.1.0 x y\n\
               a u99999999999.0 t d l p.1.0 x y\n",
        entries: &[],
        errors: &[
            "1:3: unknown API version \"2.0\"; expected u or k and two numbers, as in u2.0",
            "2:3: unknown API version \"u2.0x\"; expected u or k and two numbers, as in u2.0",
            "3:3: unknown API version \"u2.0.1\"; expected u or k and two numbers, as in u2.0",
            "4:3: unknown API version \"U2.0\"; expected u or k and two numbers, as in u2.0",
            "5:3: unknown API version \"u-2.0\"; expected u or k and two numbers, as in u2.0",
            "6:3: unknown API version \"u99999999999.0\"; expected u or k and two numbers, as in \
             u2.0",
        ],
    },
    Case {
        what: "invalid provider versions are errors",
        text: "a u2.0 threadsafe default l dapl.2 x y\n\
               a u2.0 threadsafe default l dapl.2.0.1 x y\n\
               a u2.0 threadsafe default l .2.0 x y\n",
        entries: &[],
        errors: &[
            "1:29: unknown provider version \"dapl.2\"; expected a name and two numbers, as in \
             dapl.2.0",
            "2:29: unknown provider version \"dapl.2.0.1\"; expected a name and two numbers, as in \
             dapl.2.0",
            "3:29: unknown provider version \".2.0\"; expected a name and two numbers, as in \
             dapl.2.0",
        ],
    },
    Case {
        what: "keywords in the wrong case are errors; the parser still reads later lines",
        text: "a u2.0 ThreadSafe default l d.2.0 x y\n\
               a u2.0 threadsafe DEFAULT l d.2.0 x y\n\
               good u2.0 nonthreadsafe default lib.so dapl.2.0 \"\" \"\"\n",
        entries: &[GOOD],
        errors: &[
            "1:8: unknown thread safety \"ThreadSafe\"; expected threadsafe or nonthreadsafe",
            "2:19: unknown word \"DEFAULT\"; expected default or nondefault",
        ],
    },
    Case {
        what: "lines may end with CR LF, which OFED's parser rejects",
        text: "\u{feff}# one\r\n\r\ngood u2.0 nonthreadsafe default lib.so dapl.2.0 \"\" \"\"\r\n",
        entries: &[GOOD],
        errors: &[],
    },
    Case {
        what: "an entry that continues on a second line is an error",
        text: "good u2.0 nonthreadsafe default lib.so \\\n  dapl.2.0 \"\" \"\"\n",
        entries: &[],
        errors: &[
            "1:40: an entry cannot continue on the next line; expected all 8 fields on one line",
            "2:17: the line ends after 3 of 8 fields; expected default or nondefault",
        ],
    },
    Case {
        what: "a quote that is never closed is an error; OFED's parser corrupts its heap",
        text: "a u2.0 threadsafe default l d.2.0 \"ib0 0 \"\"\n\
               b u2.0 threadsafe default l d.2.0 \"ib0 0\\\" \n\
               good u2.0 nonthreadsafe default lib.so dapl.2.0 \"\" \"\"\n",
        entries: &[GOOD],
        errors: &[
            "1:43: this quote is never closed; expected a second \" on the same line",
            "2:35: this quote is never closed; expected a second \" on the same line",
        ],
    },
    Case {
        what: "entries without a name or library are errors; OFED's parser accepts them",
        text: "\"\" u2.0 threadsafe default l d.2.0 x y\na u2.0 threadsafe default \"\" d.2.0 x \
               y\n",
        entries: &[],
        errors: &[
            "1:1: the IA name is empty; expected 1 to 255 bytes",
            "2:27: the library is empty; expected a path, or the name of a shared library",
        ],
    },
    Case {
        what: "the column in an error counts characters, not bytes",
        text: "zürich u2.0 ? default lib.so dapl.2.0 \"\" \"\"",
        entries: &[],
        errors: &["1:13: unknown thread safety \"?\"; expected threadsafe or nonthreadsafe"],
    },
];

#[test]
fn every_case_of_the_grammar() {
    for case in CASES {
        let (entries, errors) = parse(Path::new("f"), case.text.as_bytes());
        assert_eq!(lines(&entries), case.entries, "{}", case.what);
        let errors: Vec<_> = errors.iter().map(|e| e.to_string()).collect();
        let expected: Vec<_> = case.errors.iter().map(|e| format!("f:{e}")).collect();
        assert_eq!(errors, expected, "{}", case.what);
    }
}

/// An IA name has at most 255 bytes. OFED's parser silently drops a line with a longer name (case
/// 22).
#[test]
fn a_name_is_at_most_255_bytes() {
    let line =
        |length: usize| format!("{} u2.0 threadsafe default l d.2.0 x y\n", "n".repeat(length));
    let text = line(300) + &line(256) + &line(255);
    let (entries, errors) = parse(Path::new("f"), text.as_bytes());
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].ia_name.len(), 255);
    let errors: Vec<_> = errors.iter().map(|e| e.to_string()).collect();
    assert_eq!(
        errors,
        [
            "f:1:1: the IA name has 300 bytes; expected at most 255",
            "f:2:1: the IA name has 256 bytes; expected at most 255"
        ]
    );
}

#[test]
fn bytes_that_are_not_utf8_are_a_mistake_in_a_field_only() {
    let text = b"# caf\xe9\na\xff u2.0 threadsafe default l d.2.0 x y\n\
          b u2.0 threadsafe default l d.2.0 x y\n";
    let (entries, errors) = parse(Path::new("f"), text);
    assert_eq!(lines(&entries), [r#"b u2.0 threadsafe default l d.2.0 "x" "y""#]);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].to_string(), "f:2:1: not UTF-8 text");
}

#[test]
fn unused_entries_know_it() {
    let text = "a k2.0 threadsafe default l d.2.0 x y\nb u2.0 threadsafe nondefault l d.2.0 x y\n\
                c u2.0 threadsafe default l d.2.0 x y\n";
    let (entries, _) = parse(Path::new("f"), text.as_bytes());
    assert_eq!(entries[0].api.space, Space::Kernel);
    let usable: Vec<_> = entries.iter().map(Entry::usable).collect();
    assert_eq!(usable, [false, false, true]);
}

#[test]
fn written_entries_read_back() {
    for case in CASES {
        let (entries, _) = parse(Path::new("f"), case.text.as_bytes());
        let (again, errors) = parse(Path::new("g"), write(&entries).as_bytes());
        assert_eq!(errors, [], "{}", case.what);
        assert_eq!(lines(&again), lines(&entries), "{}", case.what);
        assert!(again.iter().zip(&entries).all(|(a, b)| a.same_fields(b)), "{}", case.what);
    }
}

fn lines(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| super::Line(entry).to_string()).collect()
}

#[test]
fn a_value_that_is_long_is_shown_in_part() {
    let long = "µ".repeat(1 << 20);
    let (_, errors) =
        parse(Path::new("f"), format!("a u2.0 {long} default a.so a.1.0 \"\" \"\"").as_bytes());
    let text = errors[0].to_string();
    assert!(text.len() < 500 && text.contains("… (2097152 octets); expected threadsafe"), "{text}");
    assert_eq!(errors[0].name.as_deref(), Some("a"));
}
