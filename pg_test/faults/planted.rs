
/// Which of the faults of pg_test/faults is there: the one that the process that has started the server was told of.
pub fn planted(name: &str) -> bool {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| std::env::var("PG_BULK_FAULT").unwrap_or_default()) == name
}
