
/// Whether the fault of this name is active: the one in the environment variable PG_BULK_FAULT.
pub fn planted(name: &str) -> bool {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| std::env::var("PG_BULK_FAULT").unwrap_or_default()) == name
}
