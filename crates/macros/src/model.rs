//! The parsed struct. Parsing reports all mistakes at once.

use std::collections::HashMap;

use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Fields, Ident, Visibility};

use crate::channel::Channel;
use crate::options::StateContainer;
use crate::serde_attr;

pub(crate) struct Model<'a> {
    pub(crate) name: &'a Ident,
    pub(crate) vis: &'a Visibility,
    pub(crate) options: StateContainer,
    pub(crate) channels: Vec<Channel<'a>>,
}

impl<'a> Model<'a> {
    pub(crate) fn read(input: &'a DeriveInput) -> syn::Result<Self> {
        let fields = match &input.data {
            Data::Struct(data) => match &data.fields {
                Fields::Named(fields) => &fields.named,
                Fields::Unnamed(_) | Fields::Unit => {
                    return Err(syn::Error::new(
                        input.ident.span(),
                        "a state needs named fields, for each is a channel and is stored by its name",
                    ));
                }
            },
            Data::Enum(_) | Data::Union(_) => {
                return Err(syn::Error::new(
                    input.ident.span(),
                    "a state is a struct, for its fields are the channels; put the enum into a field of one",
                ));
            }
        };
        if !input.generics.params.is_empty() {
            return Err(syn::Error::new(
                input.generics.span(),
                "a state is one type, so that stored runs can be read back; remove the parameters, \
                 or derive on a struct that names the types it uses",
            ));
        }
        let mut errors = Errors::default();
        let options = errors.keep(StateContainer::read(&input.attrs));
        let serde = errors.keep(serde_attr::container(&input.attrs)).unwrap_or_default();
        let mut channels = Vec::new();
        for field in fields {
            channels.extend(errors.keep(Channel::read(field, &serde)));
        }
        let mut names = HashMap::new();
        for channel in channels.iter().filter(|channel| channel.ephemeral.is_none()) {
            if let Some(other) = names.insert(&*channel.name, channel.ident) {
                let message = format!(
                    "fields `{other}` and `{}` are both stored as \"{}\"; rename one",
                    channel.ident, channel.name
                );
                errors.add(syn::Error::new(channel.ident.span(), message));
            }
        }
        match (errors.0, options) {
            (None, Some(options)) => Ok(Self { name: &input.ident, vis: &input.vis, options, channels }),
            (Some(errors), _) => Err(errors),
            (None, None) => Err(syn::Error::new(input.ident.span(), "the attributes cannot be read")),
        }
    }
}

#[derive(Default)]
struct Errors(Option<syn::Error>);

impl Errors {
    fn add(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn keep<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }
}
