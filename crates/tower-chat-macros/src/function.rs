//! The function under the attribute, and what becomes of it.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, GenericArgument, Ident, ItemFn, Lit, Meta, Pat,
    PathArguments, PathSegment, ReturnType, Type, TypePath, spanned::Spanned,
};

use crate::settings::Settings;

/// Types that convert into a `ToolOutput` by themselves; others are written as JSON.
const OUTPUTS: [&str; 6] = ["String", "ToolOutput", "Part", "Media", "Value", "Json"];

/// An async function that can be a tool.
pub(crate) struct ToolFunction {
    item: ItemFn,
    parameters: Vec<Parameter>,
}

struct Parameter {
    name: Ident,
    kind: Kind,
}

enum Kind {
    /// `&ToolContext`.
    Context,
    /// Any other reference, to this type.
    State(Box<Type>),
    /// What the model writes.
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
        let parameters = item.sig.inputs.iter_mut().map(parameter).collect::<syn::Result<_>>()?;
        Ok(Self { item, parameters })
    }

    /// The function that makes the tool.
    pub(crate) fn expand(&self, settings: &Settings) -> TokenStream {
        let tower_chat = settings.tower_chat();
        let ItemFn { attrs, vis, sig, block, .. } = &self.item;
        let function = &sig.ident;
        let name = settings.name.as_ref().map_or_else(
            || function.to_string().trim_start_matches("r#").to_owned(),
            |name| name.value(),
        );
        let description =
            settings.description.as_ref().map_or_else(|| documentation(attrs), |text| text.value());

        let states = self.parameters.iter().filter_map(|parameter| match &parameter.kind {
            Kind::State(of_type) => Some((&parameter.name, of_type)),
            _ => None,
        });
        let (state_names, state_types): (Vec<_>, Vec<_>) = states.unzip();
        // The derives are of type parameters where they can be, so that what a type lacks is said once,
        // where the struct is used, and not by every line that the derives write.
        let (mut argument_names, mut fields) = (Vec::new(), Vec::new());
        let (mut parameters, mut types) = (Vec::new(), Vec::new());
        for Parameter { name, kind } in &self.parameters {
            let Kind::Argument { attributes, of_type } = kind else { continue };
            argument_names.push(name);
            if says_how(attributes) {
                fields.push(quote!(#(#attributes)* #name: #of_type));
            } else {
                let parameter = format_ident!("__Argument{}", parameters.len());
                fields.push(quote!(#(#attributes)* #name: #parameter));
                parameters.push(parameter);
                types.push(of_type);
            }
        }
        let passed = self.parameters.iter().map(|Parameter { name, kind }| match kind {
            Kind::Context => quote!(&__context),
            Kind::State(_) => quote!(&*#name),
            Kind::Argument { .. } => quote!(#name),
        });
        let returned = returned(&sig.output, quote!(#function(#(#passed),*).await), &tower_chat);
        let calls = settings.calls();
        let tool = quote! {
            #tower_chat::tool::TypedTool::new(
                #name,
                #description,
                move |__arguments: __Arguments<#(#types),*>, __context: #tower_chat::tool::ToolContext| {
                    #(let #state_names = ::std::sync::Arc::clone(&#state_names);)*
                    async move {
                        let __Arguments { #(#argument_names),* } = __arguments;
                        let _ = &__context;
                        #returned
                    }
                },
            )
            #calls
        };
        let tool = match &settings.persist {
            Some(hook) => quote!(#tower_chat::tool::persist_with(#tool, #hook)),
            None => tool,
        };
        // The schemas and derives are found without a dependency on their crates.
        let serde = format!("{}::__macro::serde", path_text(&tower_chat));
        let schemars = format!("{}::__macro::schemars", path_text(&tower_chat));
        // No parameter or type of a user's begins with two underscores.
        quote! {
            #(#attrs)*
            #vis fn #function(
                #(#state_names: impl ::core::convert::Into<::std::sync::Arc<#state_types>>),*
            ) -> impl #tower_chat::Tool {
                #[derive(#tower_chat::__macro::serde::Deserialize, #tower_chat::__macro::schemars::JsonSchema)]
                #[serde(crate = #serde)]
                #[schemars(crate = #schemars)]
                #[serde(expecting = "an object with the arguments")]
                struct __Arguments<#(#parameters),*> { #(#fields),* }

                #sig #block

                #(let #state_names: ::std::sync::Arc<#state_types> =
                    ::core::convert::Into::into(#state_names);)*
                #tool
            }
        }
    }
}

/// Takes the attributes off a parameter, and says what it is.
fn parameter(input: &mut FnArg) -> syn::Result<Parameter> {
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
    let kind = match &*typed.ty {
        Type::Reference(reference) if reference.mutability.is_some() => {
            let message = "calls run at the same time: take `&T`, and put what changes into a lock";
            return Err(Error::new(reference.span(), message));
        }
        Type::Reference(reference) if ends_with(&reference.elem, &["ToolContext"]) => Kind::Context,
        Type::Reference(reference) if is_text_or_list(&reference.elem) => {
            let message = "an argument is owned, such as `String` or `Vec<T>`: a reference is state, \
                           which is handed in where the tool is made";
            return Err(Error::new(reference.span(), message));
        }
        Type::Reference(reference) => Kind::State(reference.elem.clone()),
        _ => Kind::Argument { attributes, of_type: typed.ty.clone() },
    };
    Ok(Parameter { name, kind })
}

/// Whether attributes of serde or schemars may say how the type is read or described, which by itself
/// is not.
fn says_how(attributes: &[Attribute]) -> bool {
    let is_of_derive = |attribute: &Attribute| {
        attribute.path().is_ident("serde") || attribute.path().is_ident("schemars")
    };
    attributes.iter().any(is_of_derive)
}

/// The end of the closure: what the function returns, as the result of a tool.
fn returned(output: &ReturnType, call: TokenStream, tower_chat: &TokenStream) -> TokenStream {
    let (value, of_type) = match output {
        ReturnType::Type(_, of_type) => match ok_type(of_type) {
            Some(ok) => {
                let error = quote!(::core::convert::Into::<#tower_chat::BoxError>::into);
                (quote!(#call.map_err(#error)?), Some(ok))
            }
            None => (call, Some(&**of_type)),
        },
        ReturnType::Default => (call, None),
    };
    let is_output = match of_type {
        None => true,
        Some(Type::Tuple(tuple)) => tuple.elems.is_empty(),
        Some(Type::Reference(reference)) => ends_with(&reference.elem, &["str"]),
        Some(of_type) => ends_with(of_type, &OUTPUTS) || is_vec_of_parts(of_type),
    };
    let output = if is_output { quote!(output) } else { quote!(#tower_chat::tool::Json(output)) };
    quote! {
        let output = #value;
        ::core::result::Result::Ok::<_, #tower_chat::BoxError>(#output)
    }
}

/// `T` of a `Result<T, _>`, by whatever path.
fn ok_type(of_type: &Type) -> Option<&Type> {
    first_parameter(of_type, "Result")
}

/// `str` and slices, by which nobody means state.
fn is_text_or_list(of_type: &Type) -> bool {
    matches!(of_type, Type::Slice(_)) || ends_with(of_type, &["str"])
}

fn is_vec_of_parts(of_type: &Type) -> bool {
    first_parameter(of_type, "Vec").is_some_and(|of_type| ends_with(of_type, &["Part"]))
}

fn first_parameter<'t>(of_type: &'t Type, name: &str) -> Option<&'t Type> {
    let segment = last_segment(of_type).filter(|segment| segment.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(of_type)) => Some(of_type),
        _ => None,
    }
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

/// The documentation comments: lines of a paragraph on one line, paragraphs apart.
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
