//! Variables of the process under names that other programs define.

/// Reads the variables whose names `is_wanted` accepts.
pub fn read_variables(is_wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let readable = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    readable.filter(|(name, _)| is_wanted(name)).collect()
}
