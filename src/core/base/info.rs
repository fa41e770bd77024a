//! Parsing of INFO: for programs that show statistics of this or another server.

/// The sections of a text in order, each with its fields in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InfoText {
    sections: Vec<(String, Vec<(String, String)>)>,
}

impl InfoText {
    /// Parses a text; lines that are not in the format of INFO are skipped.
    pub fn parse(text: &str) -> InfoText {
        let mut sections: Vec<(String, Vec<(String, String)>)> = Vec::new();
        for line in text.lines().map(str::trim_end) {
            if let Some(title) = line.strip_prefix("# ") {
                sections.push((title.to_ascii_lowercase(), Vec::new()));
            } else if let Some((name, value)) = line.split_once(':') {
                if sections.is_empty() {
                    sections.push((String::new(), Vec::new()));
                }
                if let Some((_, fields)) = sections.last_mut() {
                    fields.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        InfoText { sections }
    }

    /// Returns all sections, with their titles in lower case.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &[(String, String)])> {
        let sections = self.sections.iter();
        sections.map(|(title, fields)| (title.as_str(), fields.as_slice()))
    }

    /// Returns the fields of a section; none if there is no such section.
    pub fn section(&self, title: &str) -> &[(String, String)] {
        let found = self.sections.iter().find(|(each, _)| each == title);
        found.map_or(&[], |(_, fields)| fields)
    }

    /// Returns the value of a field, whichever section it is in.
    pub fn text(&self, name: &str) -> Option<&str> {
        let mut fields = self.sections.iter().flat_map(|(_, fields)| fields);
        let found = fields.find(|(each, _)| each == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the numeric value of a field, with or without a percent sign.
    pub fn number(&self, name: &str) -> Option<f64> {
        number(self.text(name)?)
    }

    /// Returns the numeric value of a field, like [`InfoText::number`]; 0 if there is none.
    pub fn figure(&self, name: &str) -> f64 {
        self.number(name).unwrap_or(0.0)
    }
}

/// Parses a number, with or without a percent sign.
pub fn number(text: &str) -> Option<f64> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    let is_plain = |byte: u8| byte.is_ascii_digit() || b".-".contains(&byte);
    match !digits.is_empty() && digits.len() <= 24 && digits.bytes().all(is_plain) {
        true => digits.parse().ok(),
        false => None,
    }
}

/// Returns the value of one name in a list such as `keys=5,expires=1,avg_ttl=0`.
pub fn part<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    let parts = value.split(',').filter_map(|part| part.split_once('='));
    let mut found = parts.filter(|(each, _)| *each == name);
    found.next().map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whichever_section_they_are_in() {
        let info = InfoText::parse(
            "# Server\r\nredis_version:7.4.0\r\nuptime_in_seconds:12\r\n\r\n# Memory\r\nused_memory_peak_perc:50.25%\r\n\
             # Keyspace\r\ndb0:keys=5,expires=1,avg_ttl=0\r\nnonsense\r\n",
        );
        assert_eq!(info.text("redis_version"), Some("7.4.0"));
        assert_eq!(info.number("redis_version"), None);
        assert_eq!(info.number("used_memory_peak_perc"), Some(50.25));
        assert_eq!(info.figure("no_such_field"), 0.0);
        assert_eq!(info.section("keyspace").len(), 1);
        assert_eq!(part(&info.section("keyspace")[0].1, "expires"), Some("1"));
        let titles: Vec<&str> = info.sections().map(|(title, _)| title).collect();
        assert_eq!(titles, ["server", "memory", "keyspace"]);
    }

    #[test]
    fn texts_that_only_look_like_numbers_are_none() {
        for text in ["", "%", "1e5", "inf", "NaN", "0x10", "ok", "1.2.3"] {
            assert_eq!(number(text), None, "{text}");
        }
        assert_eq!((number("-1"), number("3.5%")), (Some(-1.0), Some(3.5)));
    }
}
