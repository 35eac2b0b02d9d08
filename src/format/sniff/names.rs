//! Makes valid column names of a header.

/// Names that columns cannot have (SystemAttributeByName).
const SYSTEM: [&[u8]; 6] = [b"ctid", b"xmin", b"cmin", b"xmax", b"cmax", b"tableoid"];

/// Returns a distinct name for each of `columns` columns: the header's name without blanks around it, or else one made
/// of the column's number. `clip` returns how many bytes of a name to keep if it must not be longer than a limit.
pub fn names(
    header: Option<&[Option<Vec<u8>>]>,
    columns: usize,
    longest: usize,
    clip: impl Fn(&[u8], usize) -> usize,
) -> Vec<Vec<u8>> {
    let mut known: std::collections::HashSet<Vec<u8>> = SYSTEM.iter().map(|name| name.to_vec()).collect();
    let mut names = Vec::with_capacity(columns);
    for column in 0..columns {
        let given = header.and_then(|header| header.get(column)?.as_deref()).unwrap_or_default();
        let given = given.trim_ascii();
        let mut name = if given.is_empty() {
            format!("column_{}", column + 1).into_bytes()
        } else {
            given.get(..clip(given, longest)).unwrap_or(given).to_vec()
        };
        let mut number = 2;
        let stem = name.clone();
        while known.contains(&name) {
            let suffix = format!("_{number}");
            let kept = clip(&stem, longest.saturating_sub(suffix.len()));
            name = [stem.get(..kept).unwrap_or(&stem), suffix.as_bytes()].concat();
            number += 1;
        }
        known.insert(name.clone());
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different() {
        let header: Vec<_> =
            ["a", "a", "", "ctid", "a_2", " b ", "long name"].iter().map(|n| Some(n.as_bytes().to_vec())).collect();
        let names = names(Some(&header), 8, 5, |name, most| name.len().min(most));
        let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        assert_eq!(names, ["a", "a_2", "column_3", "cti_2", "a_2_2", "b", "long ", "column_8"]);
    }
}
