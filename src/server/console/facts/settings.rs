//! Directives that differ from their defaults.

use serde_json::{Value, json};

use super::super::view::View;
use super::super::viewer::Sight;
use super::HIDDEN;
use basalt_commands::config::Config;
use basalt_commands::config::table::PARAMETERS;

/// A configuration directive that differs from its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) default: String,
    pub(crate) says: &'static str,
    /// Whether CONFIG SET may change it.
    pub(crate) is_mutable: bool,
}

/// Returns the settings that differ from the defaults, with values if the viewer may see them; secrets are never
/// shown.
pub(crate) fn differing(view: &View<'_>) -> Vec<Setting> {
    let default = Config::default();
    let sees = view.viewer.sees(Sight::Config);
    let differs = PARAMETERS.iter().filter(|parameter| {
        !parameter.traits.hidden && !parameter.is_default(&view.config, &default)
    });
    differs
        .map(|parameter| Setting {
            name: parameter.name,
            value: match sees && !parameter.traits.sensitive {
                true => parameter.show(&view.config),
                false => HIDDEN.to_owned(),
            },
            default: parameter.show(&default),
            says: parameter.summary,
            is_mutable: parameter.traits.mutable,
        })
        .collect()
}

/// Formats settings as JSON.
pub(crate) fn json(settings: &[Setting]) -> Value {
    let setting = |setting: &Setting| {
        json!({
            "name": setting.name,
            "value": setting.value,
            "default": setting.default,
            "mutable": setting.is_mutable,
        })
    };
    Value::Array(settings.iter().map(setting).collect())
}
