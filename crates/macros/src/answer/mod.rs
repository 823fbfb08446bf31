//! `#[derive(AnswerShape)]`: generates the description of the JSON that a type accepts, according to its serde attributes.

mod attrs;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DataEnum, DeriveInput, Field, Fields, GenericParam, Path, Type};

use crate::rename::RenameRule;
use attrs::{AnswerContainer, AnswerOptions, Part};

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let options = AnswerOptions::read(&input.attrs)?;
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return Err(syn::Error::new(
            lifetime.span(),
            "an answer outlives the JSON that it is read from; let the type own what it holds, with `String` for `&str`",
        ));
    }
    let krate = &options.krate;
    let body = ShapeWriter { krate }.body(input, options.like.as_ref())?;
    let ShapeBody { shape, optional } = body;
    let mut generics = input.generics.clone();
    for param in &mut generics.params {
        if let GenericParam::Type(param) = param {
            param.bounds.push(syn::parse_quote!(#krate::ask::AnswerShape));
        }
    }
    let name = &input.ident;
    let (generics, arguments, bounds) = generics.split_for_impl();
    let optional = optional.map(
        |ty| quote_spanned!(ty.span()=> const OPTIONAL: bool = <#ty as #krate::ask::AnswerShape>::OPTIONAL;),
    );
    Ok(quote! {
        #[automatically_derived]
        impl #generics #krate::ask::AnswerShape for #name #arguments #bounds {
            #optional

            fn shape(__shapes: &mut #krate::ask::Shapes) -> #krate::ask::Shape {
                let _ = &__shapes;
                #shape
            }
        }
    })
}

/// The code for a shape, and the other type, if any, that decides whether a field of this type is optional.
struct ShapeBody {
    shape: TokenStream,
    optional: Option<Type>,
}

impl ShapeBody {
    fn new(shape: TokenStream) -> Self {
        Self { shape, optional: None }
    }
}

/// Generates code for types, according to the container's attributes.
struct ShapeWriter<'a> {
    krate: &'a Path,
}

impl ShapeWriter<'_> {
    fn body(&self, input: &DeriveInput, like: Option<&Type>) -> syn::Result<ShapeBody> {
        if let Some(ty) = like {
            return Ok(ShapeBody { shape: self.of(ty), optional: Some(ty.clone()) });
        }
        let container = AnswerContainer::read(&input.attrs)?;
        if let Some(ty) = &container.from {
            return Ok(ShapeBody { shape: self.of(ty), optional: Some(ty.clone()) });
        }
        match &input.data {
            Data::Struct(data) if container.is_transparent => {
                for field in &data.fields {
                    let read = ReadField::new(field)?;
                    if !read.is_skipped() && !read.part.has_default && !is_phantom(&field.ty) {
                        return Ok(ShapeBody { shape: self.of(&read.ty), optional: Some(read.ty) });
                    }
                }
                Err(syn::Error::new(input.ident.span(), "a transparent type needs a field that is read"))
            }
            Data::Struct(data) => {
                let shape =
                    self.fields(&data.fields, container.rule, container.has_default, container.is_closed)?;
                Ok(ShapeBody::new(shape))
            }
            Data::Enum(data) => self.variants(data, &container).map(ShapeBody::new),
            Data::Union(_) => Err(syn::Error::new(input.ident.span(), "serde reads no unions; use an enum")),
        }
    }

    /// Returns the shape of another type. Compiler errors point at that type.
    fn of(&self, ty: &Type) -> TokenStream {
        quote_spanned!(ty.span()=> __shapes.of::<#ty>())
    }

    fn variants(&self, data: &DataEnum, container: &AnswerContainer) -> syn::Result<TokenStream> {
        let krate = self.krate;
        let mut variants = Vec::new();
        for variant in &data.variants {
            let part = Part::read(&variant.attrs, false)?;
            refuse_options(&variant.attrs, "a variant")?;
            if part.is_skipped {
                continue;
            }
            let name = part
                .rename
                .unwrap_or_else(|| container.rule.apply_to_variant(&variant.ident.unraw().to_string()));
            let rule = part.rule.unwrap_or(container.field_rule);
            let shape = self.fields(&variant.fields, rule, false, container.is_closed)?;
            let is_unit = is_unit(&variant.fields)?;
            variants.push(match (&container.content, &variant.fields) {
                _ if container.is_untagged => shape,
                (Some(content), fields) => {
                    let field = match fields {
                        _ if is_unit => {
                            let key = key(&content.value(), true);
                            quote!((::std::string::String::from(#key), #shape))
                        }
                        // Like a field, the content may be optional.
                        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                            let ReadField { ty, .. } = ReadField::new(&fields.unnamed[0])?;
                            quote_spanned!(ty.span()=> __shapes.field::<#ty>(#content))
                        }
                        _ => {
                            let key = key(&content.value(), false);
                            quote!((::std::string::String::from(#key), #shape))
                        }
                    };
                    let closed = container.is_closed.then(|| quote!(.closed()));
                    quote!((#name, ::std::option::Option::Some(#krate::ask::Shape::object([#field])#closed)))
                }
                (None, _) if is_unit => quote!((#name, ::std::option::Option::None)),
                (None, _) => quote!((#name, ::std::option::Option::Some(#shape))),
            });
        }
        let count = variants.len();
        let named = quote!([(&str, ::std::option::Option<#krate::ask::Shape>); #count]);
        Ok(match &container.tag {
            _ if container.is_untagged => quote!(#krate::ask::Shape::any_of([#(#variants),*])),
            Some(tag) => quote! {{
                let variants: #named = [#(#variants),*];
                #krate::ask::Shape::tagged(#tag, variants)
            }},
            None => quote! {{
                let variants: #named = [#(#variants),*];
                #krate::ask::Shape::variants(variants)
            }},
        })
    }

    /// Returns the shape of a struct, or of a variant's content.
    fn fields(
        &self,
        fields: &Fields,
        rule: RenameRule,
        has_defaults: bool,
        is_closed: bool,
    ) -> syn::Result<TokenStream> {
        let krate = self.krate;
        match fields {
            Fields::Unit => Ok(quote!(__shapes.of::<()>())),
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                let read = ReadField::new(&fields.unnamed[0])?;
                Ok(if read.is_skipped() { quote!(__shapes.of::<()>()) } else { self.of(&read.ty) })
            }
            Fields::Unnamed(fields) => {
                let (mut elements, mut least) = (Vec::new(), 0);
                for field in &fields.unnamed {
                    let read = ReadField::new(field)?;
                    if read.is_skipped() {
                        continue;
                    }
                    elements.push(self.of(&read.ty));
                    if !has_defaults && !read.part.has_default {
                        least = elements.len();
                    }
                }
                Ok(quote!(#krate::ask::Shape::tuple([#(#elements),*], #least)))
            }
            Fields::Named(fields) => {
                let mut named = Vec::new();
                for field in &fields.named {
                    let read = ReadField::new(field)?;
                    if read.is_skipped() {
                        continue;
                    }
                    let name = field.ident.as_ref().map(|ident| rule.apply(&ident.unraw().to_string()));
                    let name = read.part.rename.or(name).unwrap_or_default();
                    let ty = &read.ty;
                    let has_default = has_defaults || read.part.has_default;
                    // A field with a custom deserializing function is required, whatever its type is.
                    named.push(if has_default || read.part.has_reader {
                        let key = key(&name, has_default);
                        let shape = self.of(ty);
                        quote!((::std::string::String::from(#key), #shape))
                    } else {
                        quote_spanned!(ty.span()=> __shapes.field::<#ty>(#name))
                    });
                }
                let count = named.len();
                let closed = is_closed.then(|| quote!(.closed()));
                Ok(quote! {{
                    let fields: [(::std::string::String, #krate::ask::Shape); #count] = [#(#named),*];
                    #krate::ask::Shape::object(fields)#closed
                }})
            }
        }
    }
}

/// A deserialized field.
struct ReadField {
    part: Part,
    /// The type of the field, or another type that accepts the same JSON.
    ty: Type,
}

impl ReadField {
    fn new(field: &Field) -> syn::Result<Self> {
        let like = AnswerOptions::read(&field.attrs)?.like;
        let part = Part::read(&field.attrs, like.is_some())?;
        Ok(Self { part, ty: like.unwrap_or_else(|| field.ty.clone()) })
    }

    fn is_skipped(&self) -> bool {
        self.part.is_skipped
    }
}

/// Returns whether a variant has no content to deserialize.
fn is_unit(fields: &Fields) -> syn::Result<bool> {
    match fields {
        Fields::Unit => Ok(true),
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
            Ok(ReadField::new(&fields.unnamed[0])?.is_skipped())
        }
        _ => Ok(false),
    }
}

/// Returns a field's name, with the mark for optional fields that `Shape::object` understands.
fn key(name: &str, is_optional: bool) -> String {
    let mark = match is_optional {
        true => "?",
        false if name.ends_with(['?', '!']) => "!",
        false => "",
    };
    format!("{name}{mark}")
}

fn is_phantom(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "PhantomData")
}

fn refuse_options(attrs: &[Attribute], place: &str) -> syn::Result<()> {
    match attrs.iter().find(|attr| attr.path().is_ident("answer")) {
        Some(attr) => Err(syn::Error::new(
            attr.span(),
            format!("`#[answer(...)]` says nothing on {place}; put it on the field inside, or on the enum"),
        )),
        None => Ok(()),
    }
}
