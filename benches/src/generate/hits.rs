//! `hits`: a wide row, similar to ClickBench. It has 105 columns without NULLs: identifiers, flags and codes of one to
//! ten digits, some addresses, and texts that are mostly empty. It measures the cost of a hundred fields per row.

use crate::decimal;
use crate::random::Random;

/// The contents of a column.
#[derive(Clone, Copy)]
enum Column {
    /// The row's number.
    Id,
    /// 0 or 1.
    Flag,
    /// A smallint below a bound.
    Small(u64),
    /// An int below a bound.
    Int(u64),
    /// A bigint of either sign.
    Big,
    Time,
    Date,
    /// Text that is empty in this many of 100 rows, and otherwise has a length in this range.
    Text(u64, u64, u64),
    /// A URL; empty in this many of 100 rows.
    Address(u64),
}

use Column::{Address, Big, Date, Flag, Id, Int, Small, Text, Time};

/// The columns of `load/hits.sql`.
const COLUMNS: [(&str, Column); 105] = [
    ("id", Id),
    ("java_enabled", Flag),
    ("title", Text(20, 10, 60)),
    ("good_event", Flag),
    ("event_time", Time),
    ("event_date", Date),
    ("counter_id", Int(100_000)),
    ("client_ip", Int(2_147_483_647)),
    ("region_id", Int(2_000)),
    ("user_id", Big),
    ("counter_class", Small(3)),
    ("os", Small(100)),
    ("user_agent", Small(100)),
    ("url", Address(0)),
    ("referer", Address(30)),
    ("is_refresh", Flag),
    ("referer_category_id", Small(20_000)),
    ("referer_region_id", Int(2_000)),
    ("url_category_id", Small(20_000)),
    ("url_region_id", Int(2_000)),
    ("resolution_width", Small(2_560)),
    ("resolution_height", Small(1_440)),
    ("resolution_depth", Small(33)),
    ("flash_major", Small(12)),
    ("flash_minor", Small(10)),
    ("flash_minor2", Text(50, 1, 4)),
    ("net_major", Small(5)),
    ("net_minor", Small(5)),
    ("user_agent_major", Small(50)),
    ("user_agent_minor", Text(10, 1, 3)),
    ("cookie_enabled", Flag),
    ("javascript_enabled", Flag),
    ("is_mobile", Flag),
    ("mobile_phone", Small(50)),
    ("mobile_phone_model", Text(90, 3, 12)),
    ("params", Text(95, 10, 60)),
    ("ip_network_id", Int(3_000_000)),
    ("traffic_source_id", Small(10)),
    ("search_engine_id", Small(100)),
    ("search_phrase", Text(85, 5, 50)),
    ("adv_engine_id", Small(30)),
    ("is_artificial", Flag),
    ("window_client_width", Small(2_560)),
    ("window_client_height", Small(1_440)),
    ("client_time_zone", Small(24)),
    ("client_event_time", Time),
    ("silverlight_version1", Small(6)),
    ("silverlight_version2", Small(2)),
    ("silverlight_version3", Int(70_000)),
    ("silverlight_version4", Small(2)),
    ("page_charset", Text(0, 5, 12)),
    ("code_version", Int(2_000)),
    ("is_link", Flag),
    ("is_download", Flag),
    ("is_not_bounce", Flag),
    ("f_unique_id", Big),
    ("original_url", Address(90)),
    ("hit_id", Int(1_000_000_000)),
    ("is_old_counter", Flag),
    ("is_event", Flag),
    ("is_parameter", Flag),
    ("dont_count_hits", Flag),
    ("with_hash", Flag),
    ("hit_color", Text(0, 1, 1)),
    ("local_event_time", Time),
    ("age", Small(60)),
    ("sex", Small(3)),
    ("income", Small(5)),
    ("interests", Small(30_000)),
    ("robotness", Small(5)),
    ("remote_ip", Int(2_147_483_647)),
    ("window_name", Int(1_000_000)),
    ("opener_name", Int(1_000_000)),
    ("history_length", Small(200)),
    ("browser_language", Text(0, 2, 2)),
    ("browser_country", Text(0, 2, 2)),
    ("social_network", Text(98, 4, 10)),
    ("social_action", Text(98, 4, 10)),
    ("http_error", Small(600)),
    ("send_timing", Int(10_000)),
    ("dns_timing", Int(1_000)),
    ("connect_timing", Int(1_000)),
    ("response_start_timing", Int(10_000)),
    ("response_end_timing", Int(10_000)),
    ("fetch_timing", Int(10_000)),
    ("social_source_network_id", Small(10)),
    ("social_source_page", Text(98, 10, 40)),
    ("param_price", Big),
    ("param_order_id", Text(98, 6, 12)),
    ("param_currency", Text(60, 3, 3)),
    ("param_currency_id", Small(1_000)),
    ("openstat_service_name", Text(98, 4, 10)),
    ("openstat_campaign_id", Text(98, 4, 10)),
    ("openstat_ad_id", Text(98, 4, 10)),
    ("openstat_source_id", Text(98, 4, 10)),
    ("utm_source", Text(95, 4, 12)),
    ("utm_medium", Text(95, 4, 12)),
    ("utm_campaign", Text(95, 4, 20)),
    ("utm_content", Text(97, 4, 20)),
    ("utm_term", Text(97, 4, 20)),
    ("from_tag", Text(95, 4, 12)),
    ("has_gclid", Flag),
    ("referer_hash", Big),
    ("url_hash", Big),
    ("clid", Int(1_000_000)),
];

/// Appends one row in text format.
#[inline]
pub(super) fn row(out: &mut Vec<u8>, random: &mut Random, id: u64) {
    for (position, (_, column)) in COLUMNS.into_iter().enumerate() {
        if position > 0 {
            out.push(b'\t');
        }
        match column {
            Id => decimal::integer(out, id),
            Flag => out.push(b'0' + random.below(2) as u8),
            // Most codes are small, even if the bound is large.
            Small(bound) | Int(bound) => {
                let most = if random.chance(30) { bound.min(10) } else { bound };
                decimal::integer(out, random.below(most));
            }
            Big => {
                if random.chance(50) {
                    out.push(b'-');
                }
                decimal::integer(out, random.number() >> 1);
            }
            Time => decimal::date_and_time(out, random.number()),
            Date => {
                decimal::date_and_time(out, random.number());
                out.truncate(out.len() - b" 00:00:00".len());
            }
            Text(empty, shortest, longest) => {
                if !random.chance(empty) {
                    random.text_between(out, shortest, longest);
                }
            }
            Address(empty) => {
                if !random.chance(empty) {
                    out.extend_from_slice(b"http://");
                    random.text_between(out, 4, 12);
                    out.extend_from_slice(b".example/");
                    random.text_between(out, 10, 80);
                }
            }
        }
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_the_tables() {
        let ddl = include_str!("../../load/hits.sql");
        let body = ddl.split_once("CREATE TABLE hits (\n").unwrap().1.split_once("\n);").unwrap().0;
        let types = COLUMNS.map(|(name, column)| {
            let kind = match column {
                Id | Big => "bigint",
                Flag | Small(_) => "smallint",
                Int(_) => "int",
                Time => "timestamp",
                Date => "date",
                Text(..) | Address(_) => "text",
            };
            format!("{name} {kind} NOT NULL")
        });
        assert!(body.lines().map(|line| line.trim().trim_end_matches(',')).eq(types.iter()));
    }
}
