//! Generates the code for a struct.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::Ident;
use syn::spanned::Spanned;

use crate::builder;
use crate::channel::{Channel, type_span};
use crate::model::Model;
use crate::options::ReducerKind;

pub(crate) fn expand(model: &Model<'_>) -> TokenStream {
    let Model { name, vis, options, channels } = model;
    let krate = &options.krate;
    let state = quote!(#krate::state);
    let reduce = quote!(#krate::state::reduce);
    let update = format_ident!("{name}Update");
    let version = options.version;
    let count = channels.len();
    let stored = || channels.iter().filter(|channel| channel.ephemeral.is_none());

    let markers: Vec<TokenStream> =
        channels.iter().enumerate().map(|(n, channel)| channel.marker(krate, &custom_name(n))).collect();
    let idents: Vec<&Ident> = channels.iter().map(|channel| channel.ident).collect();
    let types: Vec<_> = channels.iter().map(|channel| channel.ty).collect();
    let names: Vec<&str> = channels.iter().map(|channel| &*channel.name).collect();
    let specs = stored().map(|channel| channel.spec(krate));
    let mut index = 0_usize..;
    let ids = channels.iter().map(|channel| {
        let name = &*channel.name;
        if channel.ephemeral.is_some() {
            return quote!(#state::ChannelId::undeclared(#name));
        }
        // Count only stored fields, as the schema does.
        let index = index.next();
        quote!(#state::ChannelId::declared(#index, #name))
    });
    let ready: Vec<Ident> = (0..count).map(|n| format_ident!("__ready{n}")).collect();
    let values: Vec<Ident> = (0..count).map(|n| format_ident!("__value{n}")).collect();
    let encodes: Vec<TokenStream> = channels
        .iter()
        .enumerate()
        .map(|(n, channel)| match channel.serialize_with {
            Some(_) => encode_name(n).into_token_stream(),
            None => quote!(#reduce::Plain),
        })
        .collect();
    let compared = channels.iter().enumerate().zip(&markers).zip(&encodes).zip(&values);
    let diffs = compared.map(|((((n, channel), marker), encode), value)| {
        let Channel { ident, ty, .. } = channel;
        if channel.ephemeral.is_some() {
            return quote_spanned! {type_span(ty)=>
                #reduce::diff::<#ty, #marker>(&__CHANNELS[#n], &before.#ident, #value)
            };
        }
        // The reference makes the compiler use `==` if the type is `Eq`, and the other comparison otherwise. If the type has no comparison at all,
        // the name of the function appears in the compiler error.
        quote_spanned! {type_span(ty)=> {
            let _ = #reduce::diff::<#ty, #marker>;
            (&#reduce::Comparison::<#ty, #marker, #encode>::new()).compare(&__CHANNELS[#n], &before.#ident, #value)
        }}
    });
    let prepares = channels.iter().enumerate().zip(&markers).zip(&encodes).map(|(((n, channel), marker), encode)| {
        let Channel { ident, ty, .. } = channel;
        if channel.ephemeral.is_some() {
            return quote_spanned! {type_span(ty)=>
                #reduce::prepare_ephemeral::<#ty, #marker>(&__CHANNELS[#n], &self.#ident, &update.#ident)
            };
        }
        quote_spanned! {type_span(ty)=>
            #reduce::prepare::<#ty, #marker, #encode>(&__CHANNELS[#n], &self.#ident, &update.#ident, patch)
        }
    });
    let commits = idents
        .iter()
        .zip(&ready)
        .zip(&types)
        .map(|((ident, ready), ty)| quote_spanned!(type_span(ty)=> #ready.commit(&mut self.#ident);));
    let slots = channels.iter().zip(&markers).map(|(channel, marker)| slot(channel, marker, &reduce));
    let methods =
        channels.iter().zip(&markers).map(|(channel, marker)| builder::method(channel, vis, krate, marker));
    let forgets = forgets(channels);
    let helpers = channels.iter().enumerate().map(|(n, channel)| helpers(n, channel, &reduce));

    let update_doc = format!(
        "What a node returns to change a [`{name}`]: one method per channel, nothing until one is called."
    );
    let make_doc = format!("Makes an update of a [`{name}`] that changes nothing yet.");
    let must_use = "an update changes nothing until a node returns it";
    let unused = "one method per channel, used or not";
    quote! {
        #[doc = #update_doc]
        #[must_use = #must_use]
        #vis struct #update {
            #(#idents: #slots,)*
        }

        #[doc(hidden)]
        const _: () = {
            static __CHANNELS: [#state::ChannelId; #count] =
                [#(#ids),*];

            #(#helpers)*

            #[automatically_derived]
            #[allow(dead_code, reason = #unused)]
            impl #name {
                #[doc = #make_doc]
                #vis fn update() -> #update {
                    ::std::default::Default::default()
                }
            }

            #[automatically_derived]
            #[allow(dead_code, reason = #unused)]
            impl #update {
                #(#methods)*
            }

            #[automatically_derived]
            impl ::std::default::Default for #update {
                fn default() -> Self {
                    Self { #(#idents: ::std::default::Default::default(),)* }
                }
            }

            #[automatically_derived]
            impl ::std::fmt::Debug for #update {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    f.write_str(::std::concat!(::std::stringify!(#update), " "))?;
                    let mut written = f.debug_set();
                    #(if !self.#idents.is_empty() {
                        written.entry(&#names);
                    })*
                    written.finish()
                }
            }

            #[automatically_derived]
            impl ::std::convert::From<#update> for #state::Update<#name> {
                fn from(update: #update) -> Self {
                    Self::new(update)
                }
            }

            #[automatically_derived]
            impl #state::IntoUpdate<#name> for #update {
                fn into_update(self) -> #state::Update<#name> {
                    #state::Update::new(self)
                }
            }

            #[automatically_derived]
            impl #state::State for #name {
                type Update = #update;

                #forgets

                fn schema() -> #state::Schema {
                    static SCHEMA: ::std::sync::LazyLock<#state::Schema> = ::std::sync::LazyLock::new(|| {
                        #state::Schema::new(#version, [#(#specs),*])
                    });
                    ::std::clone::Clone::clone(&*SCHEMA)
                }

                fn diff(before: &Self, after: Self) -> #krate::Result<#update> {
                    #[allow(unused_imports, reason = #unused)]
                    use #reduce::{ByEquality as _, ByStored as _};
                    let _ = before;
                    let Self { #(#idents: #values,)* } = after;
                    ::std::result::Result::Ok(#update {
                        #(#idents: #diffs?,)*
                    })
                }

                fn apply(&mut self, update: &#update, patch: &mut #state::PatchWriter) -> #krate::Result<()> {
                    let _ = (update, &patch);
                    #(let #ready = #prepares?;)*
                    // No step fails after this point.
                    #(#commits)*
                    ::std::result::Result::Ok(())
                }
            }
        };
    }
}

/// Returns the trait item for channels that are not stored. Returns nothing if all channels are stored.
fn forgets(channels: &[Channel<'_>]) -> TokenStream {
    let forgotten = channels.iter().filter_map(|channel| {
        let (ident, value) = (channel.ident, channel.ephemeral.as_ref()?);
        Some(quote!(self.#ident = #value;))
    });
    let forgotten: Vec<TokenStream> = forgotten.collect();
    if forgotten.is_empty() {
        return TokenStream::new();
    }
    quote! {
        const EPHEMERAL: bool = true;

        fn forget_ephemeral(&mut self) {
            #(#forgotten)*
        }
    }
}

fn custom_name(n: usize) -> Ident {
    format_ident!("__Reducer{n}")
}

fn encode_name(n: usize) -> Ident {
    format_ident!("__Encode{n}")
}

/// Returns the update's field for a channel.
fn slot(channel: &Channel<'_>, marker: &TokenStream, reduce: &TokenStream) -> TokenStream {
    let ty = channel.ty;
    match &channel.reducer.kind {
        // The marker of a custom reducer is private to the generated block, so use its known input type.
        ReducerKind::Custom(_) => quote!(#reduce::Slot<#ty, ::std::vec::Vec<#ty>>),
        _ => quote_spanned!(type_span(ty)=> #reduce::Slot<#ty, <#marker as #reduce::Reduce<#ty>>::Input>),
    }
}

/// Returns the helper types for a field with a custom function.
fn helpers(n: usize, channel: &Channel<'_>, reduce: &TokenStream) -> TokenStream {
    let ty = channel.ty;
    let mut code = TokenStream::new();
    if let ReducerKind::Custom(path) = &channel.reducer.kind {
        let name = custom_name(n);
        // Use the span of the path, so that the compiler reports a wrong signature there.
        let checked = quote_spanned!(path.span()=> let function: fn(&mut #ty, #ty) = #path;);
        code.extend(quote! {
            struct #name;
            impl #reduce::CustomReducer<#ty> for #name {
                fn reduce(current: &mut #ty, update: #ty) {
                    #checked
                    function(current, update)
                }
            }
        });
    }
    if let Some(path) = &channel.serialize_with {
        let name = encode_name(n);
        code.extend(quote! {
            struct #name;
            impl #reduce::Encode<#ty> for #name {
                fn encode<__S: #reduce::Serializer>(
                    value: &#ty,
                    serializer: __S,
                ) -> ::std::result::Result<__S::Ok, __S::Error> {
                    #path(value, serializer)
                }
            }
        });
    }
    code
}
