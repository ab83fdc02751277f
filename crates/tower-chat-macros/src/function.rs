//! Parses the function with the attribute `#[tool]`, and generates the code that replaces it.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, Ident, ItemFn, Lit, Meta, Pat, PathSegment, Type,
    TypePath, spanned::Spanned,
};

use crate::settings::{Settings, check_name};

/// An async function with the `#[tool]` attribute.
pub(crate) struct ToolFunction {
    item: ItemFn,
    parameters: Vec<Parameter>,
}

struct Parameter {
    name: Ident,
    /// The variable that contains the parameter's value in the generated function. It must not have
    /// the name of the tool's function, which the generated code calls.
    variable: Ident,
    kind: Kind,
}

enum Kind {
    /// The tool context: `&ToolContext`.
    Context,
    /// A reference to this type. The application passes the value (a state of the tool) when it
    /// creates the tool.
    State(Box<Type>),
    /// An argument that the model writes.
    Argument { attributes: Vec<Attribute>, of_type: Box<Type> },
}

impl ToolFunction {
    pub(crate) fn new(mut item: ItemFn) -> syn::Result<Self> {
        let signature = &item.sig;
        if signature.asyncness.is_none() {
            return Err(Error::new(signature.fn_token.span(), "a tool is an `async fn`"));
        }
        if !signature.generics.params.is_empty() {
            let message = "a tool has no type, lifetime or const parameters";
            return Err(Error::new(signature.generics.span(), message));
        }
        let function = item.sig.ident.clone();
        let parameters = item.sig.inputs.iter_mut();
        let parameters =
            parameters.map(|input| parameter(input, &function)).collect::<syn::Result<_>>()?;
        Ok(Self { item, parameters })
    }

    /// Returns the generated function, which creates the tool. The generated function has the name
    /// of the tool's function, and a parameter for each [state](Kind::State).
    pub(crate) fn expand(&self, settings: &Settings) -> syn::Result<TokenStream> {
        let tower_chat = settings.tower_chat();
        let ItemFn { attrs, vis, sig, block, .. } = &self.item;
        let function = &sig.ident;
        let name = match &settings.name {
            Some(name) => name.value(),
            None => {
                let name = function.to_string().trim_start_matches("r#").to_owned();
                check_name(&name, function.span())?;
                name
            }
        };
        let description =
            settings.description.as_ref().map_or_else(|| documentation(attrs), |text| text.value());

        let states = self.parameters.iter().filter_map(|parameter| match &parameter.kind {
            Kind::State(of_type) => Some((&parameter.variable, of_type)),
            _ => None,
        });
        let (states, state_types): (Vec<_>, Vec<_>) = states.unzip();
        let checks = state_types.iter().map(|of_type| {
            quote_spanned!(of_type.span() => #tower_chat::__macro::is_state::<#of_type>();)
        });
        // Where possible, the type of a field of `__Arguments` is a type parameter. The closure
        // below uses `__Arguments` with the types of the tool's arguments. If an argument's type
        // lacks a required trait, the compiler therefore reports one error, at the closure. Without
        // the type parameter, the compiler would report one error for each line of the generated
        // impls.
        let (mut names, mut arguments, mut fields) = (Vec::new(), Vec::new(), Vec::new());
        let (mut parameters, mut types) = (Vec::new(), Vec::new());
        for Parameter { name, variable, kind } in &self.parameters {
            let Kind::Argument { attributes, of_type } = kind else { continue };
            names.push(name);
            arguments.push(variable);
            if has_derive_attributes(attributes) {
                fields.push(quote!(#(#attributes)* #name: #of_type));
            } else {
                let parameter = format_ident!("__Argument{}", parameters.len());
                fields.push(quote!(#(#attributes)* #name: #parameter));
                parameters.push(parameter);
                types.push(of_type);
            }
        }
        let passed = self.parameters.iter().map(|Parameter { variable, kind, .. }| match kind {
            Kind::Context => quote!(&__context),
            Kind::State(_) => quote!(&*#variable),
            Kind::Argument { .. } => quote!(#variable),
        });
        let calls = settings.calls();
        let tool = quote! {
            #tower_chat::tool::TypedTool::new(
                #name,
                #description,
                move |__arguments: __Arguments<#(#types),*>, __context: #tower_chat::ToolContext| {
                    #(let #states = ::std::sync::Arc::clone(&#states);)*
                    async move {
                        let __Arguments { #(#names: #arguments),* } = __arguments;
                        let _ = &__context;
                        // The method call below selects a method of one of these traits, depending
                        // on the return type of the function.
                        use #tower_chat::__macro::{JsonReturned as _, ValueReturned as _};
                        let __returned = #function(#(#passed),*).await;
                        let __result = #tower_chat::__macro::Returned(&__returned).result();
                        let __value = __result.of(__returned)?;
                        let __output = #tower_chat::__macro::Returned(&__value).output();
                        __output.of(__value)
                    }
                },
            )
            #calls
        };
        let tool = match &settings.persist {
            Some(hook) => quote!(#tower_chat::tool::persist_with(#tool, #hook)),
            None => tool,
        };
        // The derives use the `serde` and `schemars` that `tower-chat` exports, so that an
        // application need not depend on these crates.
        let serde = format!("{}::__macro::serde", path_text(&tower_chat));
        let schemars = format!("{}::__macro::schemars", path_text(&tower_chat));
        // All other names in the generated code begin with two underscores. This code assumes that
        // no name of an application begins with two underscores.
        Ok(quote! {
            #(#attrs)*
            #vis fn #function(
                #(#states: impl ::core::convert::Into<::std::sync::Arc<#state_types>>),*
            ) -> impl #tower_chat::Tool {
                #(#checks)*
                #[derive(#tower_chat::__macro::serde::Deserialize, #tower_chat::__macro::schemars::JsonSchema)]
                #[serde(crate = #serde)]
                #[schemars(crate = #schemars)]
                #[serde(expecting = "an object with the arguments")]
                struct __Arguments<#(#parameters),*> { #(#fields),* }

                #sig #block

                #(let #states: ::std::sync::Arc<#state_types> =
                    ::core::convert::Into::into(#states);)*
                #tool
            }
        })
    }
}

/// Removes the attributes from a parameter, and returns the parameter with its kind. Returns an
/// error for a parameter that a tool cannot have.
fn parameter(input: &mut FnArg, function: &Ident) -> syn::Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new(
            input.span(),
            "a tool is a function, not a method: take state by reference",
        ));
    };
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(Error::new(typed.pat.span(), "a parameter of a tool has a name"));
    };
    let name = pattern.ident.clone();
    let attributes = std::mem::take(&mut typed.attrs);
    if has_token(&typed.ty, |token| matches!(token, TokenTree::Ident(word) if word == "impl")) {
        let message = "a parameter of a tool has one type, from which the tool's schema is generated: write the type \
                       instead of `impl Trait`";
        return Err(Error::new(typed.ty.span(), message));
    }
    let kind = match &*typed.ty {
        Type::Reference(reference) if reference.mutability.is_some() => {
            let message =
                "calls run at the same time: take `&T`, and put changing data into a lock";
            return Err(Error::new(reference.span(), message));
        }
        Type::Reference(reference) if ends_with(&reference.elem, &["ToolContext"]) => Kind::Context,
        Type::Reference(reference) if is_text_or_list(&reference.elem) => {
            let message = "an argument is owned, such as `String` or `Vec<T>`: a reference is state, which is passed \
                           when the tool is created";
            return Err(Error::new(reference.span(), message));
        }
        Type::Reference(reference) => Kind::State(reference.elem.clone()),
        of_type if is_borrowed(of_type) => {
            let message = "an argument and all values in it are owned: write `Option<String>` \
                           instead of `Option<&str>`, and `String` instead of `Cow<'_, str>`";
            return Err(Error::new(of_type.span(), message));
        }
        _ => Kind::Argument { attributes, of_type: typed.ty.clone() },
    };
    // The generated function has a parameter for each state. The parameter has the name of the
    // state, because users see this name in the documentation. If the tool's function has the same
    // name, the parameter gets another name.
    let variable = match &kind {
        Kind::State(_) if name != *function => name.clone(),
        Kind::State(_) | Kind::Context | Kind::Argument { .. } => {
            format_ident!("__argument_{name}")
        }
    };
    Ok(Parameter { name, variable, kind })
}

/// Returns whether a parameter has attributes of serde or schemars. With such attributes, an
/// argument's type need not implement the traits of these crates. A type parameter would require
/// the traits. Therefore the type of a field with such attributes is the argument's own type.
fn has_derive_attributes(attributes: &[Attribute]) -> bool {
    let is_of_derive = |attribute: &Attribute| {
        attribute.path().is_ident("serde") || attribute.path().is_ident("schemars")
    };
    attributes.iter().any(is_of_derive)
}

/// Returns whether the type is `str` or a slice. A reference to such a type is refused, because its
/// author has most likely meant an argument instead of a state.
fn is_text_or_list(of_type: &Type) -> bool {
    matches!(of_type, Type::Slice(_)) || ends_with(of_type, &["str"])
}

/// Returns whether a type contains a reference, or a lifetime other than `'static`.
fn is_borrowed(of_type: &Type) -> bool {
    let is_reference =
        |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '&');
    let is_lifetime =
        |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '\'');
    let is_static = |token: &TokenTree| matches!(token, TokenTree::Ident(name) if name == "static");
    // A lifetime consists of two tokens: an apostrophe and the name.
    let tokens = all_tokens(of_type.to_token_stream());
    tokens.iter().any(is_reference)
        || tokens.windows(2).any(|pair| match pair {
            [first, name] => is_lifetime(first) && !is_static(name),
            _ => false,
        })
}

fn has_token(of_type: &Type, is_it: impl Fn(&TokenTree) -> bool) -> bool {
    all_tokens(of_type.to_token_stream()).iter().any(is_it)
}

fn all_tokens(stream: TokenStream) -> Vec<TokenTree> {
    let mut all = Vec::new();
    for token in stream {
        match token {
            TokenTree::Group(group) => all.extend(all_tokens(group.stream())),
            token => all.push(token),
        }
    }
    all
}

fn ends_with(of_type: &Type, names: &[&str]) -> bool {
    last_segment(of_type).is_some_and(|segment| names.iter().any(|name| segment.ident == name))
}

fn last_segment(of_type: &Type) -> Option<&PathSegment> {
    match of_type {
        Type::Path(TypePath { path, .. }) => path.segments.last(),
        _ => None,
    }
}

/// Returns the text of the documentation comments. Joins the lines of each paragraph, and separates
/// paragraphs by one blank line.
fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> = lines.collect();
    let lines: Vec<&str> = lines.iter().flat_map(|text| text.split('\n')).map(str::trim).collect();
    let paragraphs = lines.split(|line| line.is_empty()).filter(|lines| !lines.is_empty());
    paragraphs.map(|lines| lines.join(" ")).collect::<Vec<_>>().join("\n\n")
}

fn path_text(path: &TokenStream) -> String {
    path.to_string().replace(' ', "")
}
