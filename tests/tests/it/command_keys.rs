//! `photofinish key`, on the command line.

use crate::shell::Shell;

#[test]
fn a_key_is_printed_alone_and_listed_without_its_secret() {
    let shell = Shell::new();
    let arguments =
        ["key", "create", "--organization", "Harbour Run", "--mode", "live", "--label", "timing van"];
    let created =
        shell.run(&[&arguments[..], &["--scope", "search:read", "--scope", "photo:upload"]].concat(), &[]);
    let key = created.expect_success();
    assert!(key.starts_with("svc_live_") && !key.contains(char::is_whitespace), "{key}");
    // 9 characters of prefix, 32 bytes in base62, 6 characters of checksum.
    assert!((9 + 42 + 6..=9 + 44 + 6).contains(&key.len()), "{} characters", key.len());
    let listed = shell.run(&["key", "list"], &[]);
    let listing = listed.expect_success();
    assert_eq!(listing.lines().count(), 1, "{listing}");
    for part in ["Harbour Run", "timing van", "search:read", "photo:upload", "active"] {
        assert!(listing.contains(part), "{part} is not in {listing}");
    }
    assert!(!listing.contains("album:manage") && !listing.contains(&key[20..]), "{listing}");
    let id = listing.split_whitespace().next().expect("an id");
    shell.run(&["key", "revoke", id], &[]).expect_success();
    shell.run(&["key", "revoke", id], &[]).expect_success();
    assert!(shell.run(&["key", "list"], &[]).expect_success().contains("revoked"));
}

#[test]
fn a_failing_key_command_says_why() {
    let shell = Shell::new();
    let nowhere = "01890000-0000-7000-8000-000000000000";
    let cases: [(&[&str], &str); 5] = [
        (&["key", "create", "--organization", "X", "--mode", "live", "--scope", "everything"], "search:read"),
        (&["key", "create", "--organization", "X", "--mode", "tset", "--scope", "search:read"], "test"),
        (
            &["key", "create", "--organization", " ", "--mode", "test", "--scope", "search:read"],
            "organization",
        ),
        (&["key", "create", "--organization", "X", "--mode", "test"], "--scope"),
        (&["key", "revoke", nowhere], nowhere),
    ];
    for (arguments, word) in cases {
        let output = shell.run(arguments, &[]);
        assert!(output.code.is_some_and(|code| code != 0), "{arguments:?} succeeded");
        assert!(output.stderr.contains(word), "{arguments:?} does not mention {word}: {}", output.stderr);
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    }
}

#[test]
fn an_expired_key_is_listed_as_such() {
    let shell = Shell::new();
    let create = ["key", "create", "--organization", "X", "--mode", "test", "--scope", "search:read"];
    for (days, label) in [("0", "over"), ("1", "lasting")] {
        shell
            .run(&[&create[..], &["--expires-in-days", days, "--label", label]].concat(), &[])
            .expect_success();
    }
    let listed = shell.run(&["key", "list"], &[]);
    let state_of = |label: &str| {
        let line =
            listed.expect_success().lines().find(|line| line.ends_with(label)).expect("the key is listed");
        ["active", "expired", "revoked"].into_iter().find(|state| line.contains(state))
    };
    assert_eq!((state_of("over"), state_of("lasting")), (Some("expired"), Some("active")));
}

#[test]
fn a_key_that_expires_after_the_calendar_ends_is_refused_before_anything_is_written() {
    let shell = Shell::new();
    let create = ["key", "create", "--organization", "X", "--mode", "test", "--scope", "search:read"];
    for days in ["3000000", "4294967295", "4294967296", "soon"] {
        let output = shell.run(&[&create[..], &["--expires-in-days", days]].concat(), &[]);
        assert!(output.code.is_some_and(|code| code != 0), "{days} days are accepted");
        assert!(output.stderr.contains("10000") && output.stderr.contains(days), "{}", output.stderr);
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    }
    assert!(!shell.path().join("photofinish.sqlite").exists(), "the database was opened");
}
