//! Parses the settings in the parentheses of `#[tool(...)]`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{
    Error, Ident, LitInt, LitStr, Path, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream},
};

/// The settings of one tool. Each setting may be given once.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    pub(crate) persist: Option<Path>,
    /// The path of `tower-chat`, from the setting `crate`.
    tower_chat: Option<Path>,
    retries: Option<LitInt>,
    /// The delay before a retry, in milliseconds; 100 if it is not set.
    retry_delay_ms: Option<LitInt>,
    /// The settings without a value. Each has the name of a method of `TypedTool`.
    flags: Vec<Ident>,
}

const FLAGS: [&str; 4] = ["needs_approval", "safe_to_retry", "strict", "accepts_stored_arguments"];

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut settings = Self::default();
        let mut seen = Vec::new();
        while !input.is_empty() {
            // `parse_any` also accepts the keyword `crate`.
            let setting = input.call(Ident::parse_any)?;
            let name = setting.to_string();
            if seen.contains(&name) {
                return Err(Error::new(setting.span(), format!("`{name}` is set twice")));
            }
            settings.set(&name, &setting, input)?;
            seen.push(name);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if let (None, Some(delay)) = (&settings.retries, &settings.retry_delay_ms) {
            return Err(Error::new(delay.span(), "`retry_delay_ms` needs `retries`"));
        }
        Ok(settings)
    }
}

impl Settings {
    fn set(&mut self, name: &str, setting: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
        match name {
            "name" => {
                let name: LitStr = value(input)?;
                check_name(&name.value(), name.span())?;
                self.name = Some(name);
            }
            "description" => self.description = Some(value(input)?),
            "persist" => self.persist = Some(value(input)?),
            "crate" => self.tower_chat = Some(value(input)?),
            "retries" => self.retries = Some(value(input)?),
            "retry_delay_ms" => self.retry_delay_ms = Some(value(input)?),
            flag if FLAGS.contains(&flag) => self.flags.push(setting.clone()),
            _ => {
                let known = FLAGS.join("`, `");
                return Err(Error::new(
                    setting.span(),
                    format!(
                        "a tool has no setting `{name}`; the settings are `name`, `description`, \
                         `persist`, `crate`, `retries`, `retry_delay_ms`, `{known}`"
                    ),
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn tower_chat(&self) -> TokenStream {
        match &self.tower_chat {
            Some(path) => quote!(#path),
            None => quote!(::tower_chat),
        }
    }

    /// Returns the method calls that apply the settings to the `TypedTool`.
    pub(crate) fn calls(&self) -> TokenStream {
        let flags = &self.flags;
        let retries = self.retries.as_ref().map(|count| {
            let delay = match &self.retry_delay_ms {
                Some(delay) => quote!(#delay),
                None => quote!(100),
            };
            quote!(.with_retries(#count, ::core::time::Duration::from_millis(#delay)))
        });
        quote!(#(.#flags())* #retries)
    }
}

/// Returns an error if no provider accepts the name of a tool.
///
/// OpenAI and Anthropic accept ASCII letters, digits, `_` and `-`; Gemini also accepts `.` and `:`.
/// If the provider of a request does not accept the name, the model client sends another name
/// instead.
pub(crate) fn check_name(name: &str, span: Span) -> syn::Result<()> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    if (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_allowed) {
        return Ok(());
    }
    let message = format!(
        "no provider accepts the tool name {name:?}: a name has 1 to {LONGEST_NAME} ASCII \
         letters, digits, `_`, `-`, `.` and `:`; set another name with `#[tool(name = \"...\")]`"
    );
    Err(Error::new(span, message))
}

/// The length of the longest name that this check allows, in characters. All providers accept this
/// length.
const LONGEST_NAME: usize = 64;

/// Parses an equals sign and the value after it.
fn value<T: Parse>(input: ParseStream<'_>) -> syn::Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}
