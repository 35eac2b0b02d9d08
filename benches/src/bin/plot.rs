//! Draws the figures of the harness:
//!
//! ```text
//! plot FIGURES.tsv PICTURE.png
//! ```
//!
//! Each workload has a group of bars, one for each method of loading, on a logarithmic axis of seconds. A line over a
//! bar shows the range of the rounds. The workloads and methods come from the file. The modes `load`, `append` and
//! `parts` are drawn, in that order. Methods without a color here are left out, as are workloads that only one method
//! has loaded.

use std::fs::File;
use std::io::BufWriter;
use std::process::ExitCode;

use plotters::backend::BitMapBackend;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

type Area<'a> = DrawingArea<BitMapBackend<'a>, Shift>;

/// The methods that are drawn, with their names and colors: gray for COPY, green for other loaders, blue for pg_bulk.
const WAYS: [(&str, &str, RGBColor); 16] = [
    ("copy", "COPY", RGBColor(70, 70, 70)),
    ("copy_good", "COPY of the good rows", RGBColor(70, 70, 70)),
    ("copy_freeze", "COPY FREEZE", RGBColor(120, 120, 120)),
    ("copy_then_index", "COPY, CREATE INDEX", RGBColor(150, 110, 90)),
    ("two_copies", "2 COPYs", RGBColor(160, 160, 160)),
    ("four_copies", "4 COPYs", RGBColor(195, 195, 195)),
    ("pg_bulkload", "pg_bulkload PARALLEL", RGBColor(60, 150, 80)),
    ("timescaledb_parallel_copy", "timescaledb-parallel-copy", RGBColor(120, 190, 110)),
    ("file_fdw", "file_fdw", RGBColor(200, 190, 120)),
    ("bulk_fdw", "bulk_fdw", RGBColor(150, 200, 235)),
    ("bulk_fdw_direct", "bulk_fdw, taken over", RGBColor(100, 170, 220)),
    ("bulk_enqueue", "bulk_enqueue", RGBColor(60, 130, 200)),
    ("four_jobs", "4 jobs", RGBColor(110, 110, 210)),
    ("bulk_load", "bulk_load", RGBColor(20, 80, 170)),
    ("bulk_load_share", "bulk_load, lock share", RGBColor(90, 60, 150)),
    ("floor", "floor", RGBColor(220, 60, 50)),
];

const WIDTH: u32 = 1500;
const PANEL: u32 = 360;
const TITLE: u32 = 90;
/// Number of groups side by side.
const GROUPS: usize = 5;
const FONT: &str = "sans-serif";

/// The minimum, median and maximum of a method's rounds.
#[derive(Debug, PartialEq)]
struct Bar {
    way: usize,
    least: f64,
    median: f64,
    greatest: f64,
}

/// The bars of one workload.
#[derive(Debug, PartialEq)]
struct Group {
    title: String,
    bars: Vec<Bar>,
}

/// Reads the groups of a file of figures.
fn groups(text: &str) -> Result<Vec<Group>, String> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let titles: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    let column = |name: &str| titles.iter().position(|title| *title == name).ok_or(format!("no column {name}"));
    let columns = [column("mode")?, column("workload")?, column("rival")?, column("figure")?, column("value")?];
    let mut found: Vec<(usize, String, Vec<Vec<f64>>)> = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let [mode, workload, rival, figure, value] = columns.map(|at| fields.get(at).copied().unwrap_or_default());
        let Some(order) = ["load", "append", "parts"].iter().position(|known| *known == mode) else { continue };
        let Some(way) = WAYS.iter().position(|(name, ..)| *name == rival) else { continue };
        if figure != "seconds" {
            continue;
        }
        let value: f64 = value.parse().map_err(|_| format!("not a number: {line}"))?;
        let title = if mode == "parts" { format!("{workload}, in parts") } else { workload.to_string() };
        let at = found.iter().position(|(_, known, _)| *known == title).unwrap_or_else(|| {
            found.push((order, title, vec![Vec::new(); WAYS.len()]));
            found.len() - 1
        });
        found[at].2[way].push(value);
    }
    found.sort_by_key(|(order, ..)| *order);
    let groups = found.into_iter().map(|(_, title, ways)| {
        let bars = ways.into_iter().enumerate().filter(|(_, seconds)| !seconds.is_empty()).map(|(way, mut seconds)| {
            seconds.sort_by(f64::total_cmp);
            let (low, high) = (seconds[(seconds.len() - 1) / 2], seconds[seconds.len() / 2]);
            Bar { way, least: seconds[0], median: (low + high) / 2.0, greatest: seconds[seconds.len() - 1] }
        });
        Group { title, bars: bars.collect() }
    });
    Ok(groups.filter(|group| group.bars.len() > 1).collect())
}

fn draw(groups: &[Group], area: &Area) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(TITLE);
    legend(groups, &head)?;
    let panels = body.split_evenly((groups.len().div_ceil(GROUPS), 1));
    panels.iter().zip(groups.chunks(GROUPS)).try_for_each(|(area, groups)| panel(groups, area))
}

fn legend(groups: &[Group], area: &Area) -> Result<(), Box<dyn std::error::Error>> {
    let style = (FONT, 17).into_font().color(&BLACK);
    area.draw(&Text::new(
        "Seconds to load a file, logarithmic; shorter is faster; number: times as fast as COPY",
        (20, 10),
        (FONT, 20).into_font(),
    ))?;
    let (mut x, mut y) = (20, 40);
    for (way, (_, label, colour)) in WAYS.iter().enumerate() {
        if !groups.iter().any(|group| group.bars.iter().any(|bar| bar.way == way)) {
            continue;
        }
        let (width, _) = area.estimate_text_size(label, &style)?;
        let end = x + 22 + i32::try_from(width)? + 22;
        if end > i32::try_from(WIDTH)? {
            (x, y) = (20, y + 24);
        }
        area.draw(&Rectangle::new([(x, y), (x + 16, y + 16)], colour.filled()))?;
        area.draw(&Text::new(*label, (x + 22, y), style.clone()))?;
        x += 22 + i32::try_from(width)? + 22;
    }
    Ok(())
}

fn panel(groups: &[Group], area: &Area) -> Result<(), Box<dyn std::error::Error>> {
    let bars = || groups.iter().flat_map(|group| &group.bars);
    let least = bars().map(|bar| bar.least).fold(f64::INFINITY, f64::min);
    let greatest = bars().map(|bar| bar.greatest).fold(0.0, f64::max);
    let (bottom, top) = (least.max(1e-4) / 1.6, greatest.max(1e-3) * 1.9);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(62)
        .build_cartesian_2d(0.0..GROUPS as f64, (bottom..top).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_labels(8)
        .y_label_formatter(&|seconds| format!("{seconds} s"))
        .y_label_style((FONT, 14))
        .light_line_style(RGBColor(235, 235, 235))
        .bold_line_style(RGBColor(215, 215, 215))
        .draw()?;
    for (at, group) in groups.iter().enumerate() {
        let share = 0.9 / group.bars.len().max(8) as f64;
        let start = at as f64 + 0.5 - share * group.bars.len() as f64 / 2.0;
        let copy = group.bars.iter().find(|bar| WAYS[bar.way].0.starts_with("copy") && bar.way < 2);
        for (number, bar) in group.bars.iter().enumerate() {
            let left = start + share * number as f64;
            let (right, middle) = (left + share * 0.88, left + share * 0.44);
            let colour = WAYS[bar.way].2;
            chart.draw_series([Rectangle::new([(left, bottom), (right, bar.median)], colour.filled())])?;
            chart.draw_series([PathElement::new([(middle, bar.least), (middle, bar.greatest)], BLACK)])?;
            if let Some(copy) = copy.filter(|copy| copy.way != bar.way) {
                let ratio = copy.median / bar.median;
                let text = if ratio < 9.95 { format!("{ratio:.1}") } else { format!("{ratio:.0}") };
                let style = (FONT, 13).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Bottom));
                chart.draw_series([Text::new(text, (middle, bar.greatest * 1.04), style)])?;
            }
        }
        let (x, y) = chart.backend_coord(&(at as f64 + 0.5, bottom));
        let (x0, y0) = area.get_base_pixel();
        let style = (FONT, 17).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(group.title.as_str(), (x - x0, y - y0 + 8), style))?;
    }
    Ok(())
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let operands: Vec<String> = std::env::args().skip(1).collect();
    let [figures, picture] = <[String; 2]>::try_from(operands).map_err(|_| "usage: plot FIGURES.tsv PICTURE.png")?;
    let text = std::fs::read_to_string(&figures).map_err(|error| format!("{figures}: {error}"))?;
    let groups = groups(&text)?;
    if groups.is_empty() {
        return Err(format!("{figures}: nothing to draw").into());
    }
    let font = epaint_default_fonts::UBUNTU_LIGHT;
    plotters::style::register_font(FONT, FontStyle::Normal, font).map_err(|_| "the font is no font")?;
    let height = TITLE + PANEL * u32::try_from(groups.len().div_ceil(GROUPS))?;
    let mut pixels = vec![0; (WIDTH * height * 3) as usize];
    {
        let area = BitMapBackend::with_buffer(&mut pixels, (WIDTH, height)).into_drawing_area();
        draw(&groups, &area)?;
        area.present()?;
    }
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(&picture)?), WIDTH, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plot: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# a run\nworkload\trows\tbytes\tmode\tcase\trival\tround\tfigure\tvalue\n";

    #[test]
    fn medians_and_extremes_of_what_is_drawn() {
        let text = [
            HEAD,
            "extract\t9\t9\tparts\t\tcopy\t1\tseconds\t9\n",
            "test\t9\t9\tload\t\tcopy\t1\tseconds\t3\n",
            "test\t9\t9\tload\t\tcopy\t2\tseconds\t1\n",
            "test\t9\t9\tload\t\tcopy\t3\tseconds\t2\n",
            "test\t9\t9\tload\t\tcopy\t3\twal_bytes\t77\n",
            "test\t9\t9\tload\t\tbulk_load\t1\tseconds\t0.5\n",
            "test\t9\t9\tmemory\t\tbulk_load\t1\tseconds\t7\n",
            "demo\t9\t9\tload\t\tbulk_load\t1\tseconds\t7\n",
            "extract\t9\t9\tparts\t\tfour_jobs\t1\tseconds\t4\n",
        ];
        let found = groups(&text.concat()).unwrap();
        let bar = |way: &str, least, median, greatest| Bar {
            way: WAYS.iter().position(|(name, ..)| *name == way).unwrap(),
            least,
            median,
            greatest,
        };
        let test = Group {
            title: "test".to_string(),
            bars: vec![bar("copy", 1.0, 2.0, 3.0), bar("bulk_load", 0.5, 0.5, 0.5)],
        };
        let parts = Group {
            title: "extract, in parts".to_string(),
            bars: vec![bar("copy", 9.0, 9.0, 9.0), bar("four_jobs", 4.0, 4.0, 4.0)],
        };
        assert_eq!(found, [test, parts]);
    }

    #[test]
    fn figures_that_are_none_are_errors() {
        assert!(groups("").is_err());
        assert!(groups(&format!("{HEAD}test\t9\t9\tload\t\tcopy\t1\tseconds\tsoon\n")).is_err());
    }
}
