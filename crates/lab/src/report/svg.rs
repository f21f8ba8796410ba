//! A small writer of SVG: shapes with classes (the page's style sheet colours them), scales, axes.

use std::fmt::Write;

/// Width of every picture.
pub const WIDTH: f64 = 960.0;

/// The class of the `index`-th variant or task: six colours.
pub fn colour(index: usize) -> String {
    format!("c{}", index % 6)
}

/// Text that is safe in SVG and HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// From values to places.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    log: bool,
}

impl Scale {
    /// Values `from..to` lie evenly on `start..end`.
    pub fn linear(from: f64, to: f64, start: f64, end: f64) -> Scale {
        let to = if to > from { to } else { from + 1.0 };
        Scale { from, to, start, end, log: false }
    }

    /// Powers lie evenly; values below `from` are put there.
    pub fn log(from: f64, to: f64, start: f64, end: f64) -> Scale {
        let from = from.max(1e-9);
        Scale { from, to: to.max(from * 1.0001), start, end, log: true }
    }

    /// The place of a value, within the scale.
    pub fn at(&self, value: f64) -> f64 {
        let part = match self.log {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        self.start + (self.end - self.start) * part.clamp(0.0, 1.0)
    }

    /// Round values for an axis.
    pub fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.from.log10().floor() as i32)..=(self.to.log10().ceil() as i32);
            let all = decades.map(|power| 10f64.powi(power));
            let inside: Vec<f64> =
                all.filter(|v| *v >= self.from * 0.999 && *v <= self.to * 1.001).collect();
            return if inside.len() > 1 { inside } else { vec![self.from, self.to] };
        }
        let rough = (self.to - self.from) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.from / step).ceil() as i64;
        (first..).map(|n| n as f64 * step).take_while(|v| *v <= self.to * 1.0001).collect()
    }
}

/// A number for a label, without needless digits.
pub fn label(value: f64) -> String {
    let digits = match value.abs() {
        v if v == 0.0 || v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A place in a picture: tenths are enough.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Place and size.
pub type Rect = ((f64, f64), (f64, f64));

/// A picture under way.
pub struct Svg {
    width: f64,
    height: f64,
    title: String,
    body: String,
}

/// Where a plot lies in its picture.
#[derive(Clone, Copy)]
pub struct Plot {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

/// One axis of a plot.
#[derive(Clone, Copy)]
pub struct Axis<'a> {
    pub scale: &'a Scale,
    pub title: &'a str,
}

impl<'a> Axis<'a> {
    /// A scale with a title.
    pub fn new(scale: &'a Scale, title: &'a str) -> Axis<'a> {
        Axis { scale, title }
    }
}

impl Svg {
    /// An empty picture; `title` is what a screen reader says.
    pub fn new(width: f64, height: f64, title: &str) -> Svg {
        Svg { width, height, title: title.to_owned(), body: String::new() }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("writing to a string");
    }

    /// A line.
    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// A rectangle with a tooltip.
    pub fn rect(&mut self, class: &str, (x, y): (f64, f64), (w, h): (f64, f64), tip: &str) {
        let tip = escape(tip);
        let tip = if tip.is_empty() { tip } else { format!("<title>{tip}</title>") };
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.2}" y="{y:.2}" width="{w:.2}" height="{h:.2}">"#
        ));
        self.push(format_args!("{tip}</rect>"));
    }

    /// A group: what comes until [`Svg::close`] takes its class.
    pub fn open(&mut self, class: &str) {
        self.push(format_args!(r#"<g class="{class}">"#));
    }

    /// Ends the last group.
    pub fn close(&mut self) {
        self.body.push_str("</g>");
    }

    /// Rectangles (place, size) as one shape: a page has thousands of them.
    pub fn boxes(&mut self, class: &str, boxes: &[Rect], tip: &str) {
        if boxes.is_empty() {
            return;
        }
        let mut d = String::new();
        for ((x, y), (w, h)) in boxes {
            let [x, y, w, h] = [*x, *y, *w, *h].map(short);
            write!(d, "M{x} {y}h{w}v{h}h-{w}z").expect("writing to a string");
        }
        let tip = escape(tip);
        let tip = if tip.is_empty() { tip } else { format!("<title>{tip}</title>") };
        self.push(format_args!(r#"<path class="{class}" d="{d}">{tip}</path>"#));
    }

    /// One rectangle of thousands: its class is that of the group, its tooltip is made of `data`.
    pub fn item(&mut self, ((x, y), (w, h)): Rect, data: &str) {
        let [x, y, w, h] = [x, y, w, h].map(short);
        let data = escape(data);
        self.push(format_args!(r#"<path d="M{x} {y}h{w}v{h}h-{w}" data-t="{data}"/>"#));
    }

    /// A line through points; `steps` draws them as a staircase.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)], steps: bool) {
        let mut d = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            match (index, steps) {
                (0, _) => write!(d, "M{} {}", short(*x), short(*y)),
                (_, true) => write!(d, "H{}V{}", short(*x), short(*y)),
                (_, false) => write!(d, "L{} {}", short(*x), short(*y)),
            }
            .expect("writing to a string");
        }
        self.push(format_args!(r#"<path class="{class}" fill="none" d="{d}"/>"#));
    }

    /// One of six marks, so that colour is not the only difference.
    pub fn mark(&mut self, class: &str, shape: usize, (x, y): (f64, f64), tip: &str) {
        let d = match shape % 6 {
            0 => format!("M{:.1} {y:.1}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0", x - 5.0),
            1 => format!("M{:.1} {:.1}h9v9h-9z", x - 4.5, y - 4.5),
            2 => format!("M{x:.1} {:.1}l5.5 10h-11z", y - 6.0),
            3 => format!("M{x:.1} {:.1}l6 6l-6 6l-6 -6z", y - 6.0),
            4 => format!("M{x:.1} {:.1}l5.5 -10h-11z", y + 6.0),
            _ => format!("M{:.1} {:.1}h4v-4h4v4h4v4h-4v4h-4v-4h-4z", x - 6.0, y - 2.0),
        };
        let tip = escape(tip);
        self.push(format_args!(
            r#"<path class="mark {class}" d="{d}"><title>{tip}</title></path>"#
        ));
    }

    /// Words; `anchor` is start, middle or end.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = escape(text);
        self.push(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// Axes with ticks and titles around a plot.
    pub fn axes(&mut self, plot: Plot, across: Axis<'_>, upwards: Axis<'_>) {
        let Plot { left, top, right, bottom } = plot;
        let (x, y) = (across.scale, upwards.scale);
        for tick in x.ticks() {
            let at = x.at(tick);
            self.line("grid", (at, top), (at, bottom));
            self.text("tick", (at, bottom + 16.0), "middle", &label(tick));
        }
        for tick in y.ticks() {
            let at = y.at(tick);
            self.line("grid", (left, at), (right, at));
            self.text("tick", (left - 7.0, at + 4.0), "end", &label(tick));
        }
        self.line("axis", (left, bottom), (right, bottom));
        self.line("axis", (left, top), (left, bottom));
        self.text("name", ((left + right) / 2.0, bottom + 34.0), "middle", across.title);
        self.text("name", (left, top - 9.0), "start", upwards.title);
    }

    /// The finished picture.
    pub fn finish(self) -> String {
        let (width, height, title) = (self.width, self.height, escape(&self.title));
        format!(
            r#"<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}">{}</svg>"#,
            self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_keep_values_inside_and_ticks_are_round() {
        let scale = Scale::linear(0.0, 530.0, 0.0, 100.0);
        assert_eq!(scale.ticks(), [0.0, 200.0, 400.0]);
        assert_eq!((scale.at(265.0), scale.at(9999.0)), (50.0, 100.0));
        let log = Scale::log(0.01, 100.0, 0.0, 40.0);
        assert_eq!(log.ticks(), [0.01, 0.1, 1.0, 10.0, 100.0]);
        assert_eq!((log.at(1.0), log.at(0.0)), (20.0, 0.0));
        assert!(!Scale::linear(5.0, 5.0, 0.0, 1.0).ticks().is_empty());
    }

    #[test]
    fn what_users_write_cannot_leave_its_place() {
        let mut svg = Svg::new(10.0, 10.0, "a\"b");
        svg.text("x", (1.0, 2.0), "start", "<script>&");
        let text = svg.finish();
        assert!(text.contains("&lt;script&gt;&amp;") && text.contains("a&quot;b"), "{text}");
    }
}
