use super::*;

#[test]
fn a_build_number_may_have_its_letter() {
    for text in ["10300", "b10300"] {
        assert_eq!(number(text), Some(10_300));
    }
    for text in ["", "new", "-1", "10300x", "99999999999"] {
        assert_eq!(number(text), None, "{text}");
    }
}

#[test]
fn a_known_release_is_known_by_its_version() {
    for text in ["0.6.0", "v0.6.0"] {
        assert_eq!(number(text), Some(11_434));
    }
    assert_eq!(number("0.5.0"), Some(10_394));
    // The version of all builds between two releases, an untested release, and texts that are no
    // versions.
    for text in ["0.6.0-dev", "0.7.0", "b0.6.0", "v10300", "v", "0.6"] {
        assert_eq!(number(text), None, "{text}");
    }
}

#[test]
fn a_build_that_cannot_be_is_none() {
    let fits = |build, sign| Build(build).fits(sign).map(|Build(known)| known);
    assert_eq!(fits(4_662, None), Ok(4_662));
    assert_eq!(fits(99_999, None), Ok(99_999));
    // Numbers that builds outside a complete git checkout report.
    for number in [0, 1, 259, 454] {
        assert!(fits(number, None).is_err());
    }
    let error = fits(4_661, None).unwrap_err();
    assert!(error.contains("the first that takes samplers of others"));
    // `llama_sampler_copy` proves a minimum build number. A number above the minimum is accepted,
    // and one below it is refused.
    let [_, copy, _] = &SIGNS;
    assert_eq!(fits(10_400, Some(copy)), Ok(10_400));
    let error = fits(9_000, Some(copy)).unwrap_err();
    assert!(error.contains("b9000") && error.contains("llama_sampler_copy"));
}

#[test]
fn argument_lists_change_where_they_did() {
    assert!(!Build(10_257).penalties_take_n_vocab());
    assert!(Build(10_258).penalties_take_n_vocab());
    assert!(Build(10_272).dry_takes_n_ctx_train());
    assert!(!Build(10_273).dry_takes_n_ctx_train());
}
