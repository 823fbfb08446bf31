// The JSON Schema of an answer (docs/how-to/questions.md, "Forms") as something that a form can be made of.

// A bound of 64 bits has more digits than a number of this language.
const bound = (number) => (number === undefined ? undefined : BigInt(number?.rawJSON ?? number));

const isText = (value) => typeof value === 'string';

// What tells one way to answer from the others: a tag, the name of its only field, its choices, its type.
function word(schema) {
  const tags = Object.values(schema.properties ?? {}).filter((of) => 'const' in of).map((of) => of.const);
  if (tags.length) return tags.join(', ');
  if (schema.required?.length === 1 && schema.additionalProperties === false) return schema.required[0];
  if (schema.enum) return schema.enum.length > 4 ? 'a choice' : schema.enum.join(', ');
  if (schema.type === 'object' && schema.required?.length) return schema.required.join(', ');
  return { integer: 'a whole number', number: 'a number', string: 'a text', boolean: 'yes or no', array: 'a list', object: 'fields', null: 'nothing' }[schema.type] ?? 'JSON';
}

// Returns `{ kind, … }`; what has no form of its own is `json`.
export function read(schema) {
  if (!schema || typeof schema !== 'object') return { kind: 'json' };
  if ('const' in schema) return { kind: 'const', value: schema.const };
  // A choice of one is chosen already.
  if (Array.isArray(schema.enum) && schema.enum.length === 1) return { kind: 'const', value: schema.enum[0] };
  if (Array.isArray(schema.enum)) return schema.enum.every(isText) ? { kind: 'choice', values: schema.enum } : { kind: 'json' };
  if (Array.isArray(schema.anyOf)) {
    const rest = schema.anyOf.filter((way) => way?.type !== 'null');
    if (rest.length === 1 && schema.anyOf.length === 2) return { kind: 'nullable', of: read(rest[0]) };
    return { kind: 'any', ways: schema.anyOf.map((way) => ({ word: word(way), of: read(way) })) };
  }
  switch (schema.type) {
    case 'boolean': return { kind: 'bool' };
    case 'string': return { kind: 'text', short: schema.maxLength === 1 };
    case 'integer': return { kind: 'number', whole: true, least: bound(schema.minimum), most: bound(schema.maximum) };
    case 'number': return { kind: 'number' };
    case 'null': return { kind: 'const', value: null };
    case 'array':
      if (schema.maxItems === 0) return { kind: 'const', value: [] };
      if (schema.prefixItems) return { kind: 'tuple', least: schema.minItems ?? 0, of: schema.prefixItems.map(read) };
      return { kind: 'list', of: read(schema.items) };
    case 'object': {
      const fields = Object.entries(schema.properties ?? {}).map(([name, of]) => ({ name, needed: schema.required?.includes(name) ?? false, of: read(of) }));
      if (fields.length) return { kind: 'object', fields };
      return schema.additionalProperties ? { kind: 'map', of: read(schema.additionalProperties) } : { kind: 'json' };
    }
    default: return { kind: 'json' };
  }
}

// What a form begins with.
export function blank(form) {
  switch (form.kind) {
    case 'bool':
    case 'choice': return null;
    case 'nullable': return { is: false, value: blank(form.of) };
    case 'any': return { at: 0, values: form.ways.map((way) => blank(way.of)) };
    case 'tuple': return form.of.map((of, index) => ({ is: index < form.least, value: blank(of) }));
    case 'list':
    case 'map': return [];
    case 'object': return Object.fromEntries(form.fields.map((field) => [field.name, { is: field.needed, value: blank(field.of) }]));
    default: return '';
  }
}

// A number with more digits than this language keeps, as `parsed` reads it.
const digits = (value) => (JSON.isRawJSON?.(value) ? value.rawJSON : null);
const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value) && digits(value) === null;

// Whether a form can show a value.
function fits(form, value) {
  switch (form.kind) {
    case 'bool': return typeof value === 'boolean';
    case 'text': return isText(value);
    // One that this language has rounded is not what was meant.
    case 'number':
      if (digits(value) !== null) return !form.whole || /^-?\d+$/.test(digits(value));
      return typeof value === 'number' && (Number.isSafeInteger(value) || !Number.isInteger(value));
    case 'choice': return form.values.includes(value);
    case 'const': return JSON.stringify(form.value) === JSON.stringify(value);
    case 'nullable': return value === null || fits(form.of, value);
    case 'any': return form.ways.some((way) => fits(way.of, value));
    case 'list': return Array.isArray(value) && value.every((one) => fits(form.of, one));
    case 'tuple': return Array.isArray(value) && value.length >= form.least && value.length <= form.of.length && value.every((one, index) => fits(form.of[index], one));
    case 'map': return isObject(value) && Object.values(value).every((one) => fits(form.of, one));
    case 'object': return isObject(value) && form.fields.every((field) => (field.name in value ? fits(field.of, value[field.name]) : !field.needed));
    default: return true;
  }
}

// What a form begins with that is to show a value.
export function filled(form, value) {
  if (!fits(form, value)) return blank(form);
  switch (form.kind) {
    case 'number': return digits(value) ?? String(value);
    case 'nullable': return value === null ? blank(form) : { is: true, value: filled(form.of, value) };
    case 'any': {
      const at = form.ways.findIndex((way) => fits(way.of, value));
      return { at, values: form.ways.map((way, index) => (index === at ? filled(way.of, value) : blank(way.of))) };
    }
    case 'list': return value.map((one) => filled(form.of, one));
    case 'tuple': return form.of.map((of, index) => (index < value.length ? { is: true, value: filled(of, value[index]) } : { is: false, value: blank(of) }));
    case 'map': return Object.entries(value).map(([key, one]) => ({ key, value: filled(form.of, one) }));
    case 'object': return Object.fromEntries(form.fields.map((field) => {
      const is = field.name in value;
      return [field.name, { is: is || field.needed, value: is ? filled(field.of, value[field.name]) : blank(field.of) }];
    }));
    case 'json': return JSON.stringify(value, null, 2);
    default: return value;
  }
}

// Returns what a form says as JSON text, or throws what is missing. As text, for a number may have more digits than this language keeps.
export function said(form, value, at = '') {
  const where = at ? `${at}: ` : '';
  switch (form.kind) {
    case 'bool':
    case 'choice':
      if (value === null) throw new Error(`${where}choose one`);
      return JSON.stringify(value);
    case 'const': return JSON.stringify(form.value);
    case 'text':
      if (form.short && [...value].length !== 1) throw new Error(`${where}one character`);
      return JSON.stringify(value);
    case 'number': {
      const text = String(value).trim();
      if (!(form.whole ? /^-?(0|[1-9]\d*)$/ : /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/).test(text)) throw new Error(`${where}${form.whole ? 'a whole number' : 'a number'}`);
      if (form.least !== undefined && BigInt(text) < form.least) throw new Error(`${where}at least ${form.least}`);
      if (form.most !== undefined && BigInt(text) > form.most) throw new Error(`${where}at most ${form.most}`);
      return text;
    }
    case 'nullable': return value.is ? said(form.of, value.value, at) : 'null';
    case 'any': return said(form.ways[value.at].of, value.values[value.at], at);
    case 'list': return `[${value.map((one, index) => said(form.of, one, `${at || 'entry'} ${index + 1}`)).join(',')}]`;
    case 'tuple': {
      const end = value.findIndex((one) => !one.is);
      return `[${value.slice(0, end < 0 ? value.length : end).map((one, index) => said(form.of[index], one.value, `${at || 'entry'} ${index + 1}`)).join(',')}]`;
    }
    case 'map': {
      const keys = value.map((one) => one.key);
      if (new Set(keys).size !== keys.length) throw new Error(`${where}a name is there twice`);
      return `{${value.map((one) => `${JSON.stringify(one.key)}:${said(form.of, one.value, at ? `${at}.${one.key}` : one.key)}`).join(',')}}`;
    }
    case 'object': {
      const fields = form.fields.filter((field) => value[field.name].is);
      return `{${fields.map((field) => `${JSON.stringify(field.name)}:${said(field.of, value[field.name].value, at ? `${at}.${field.name}` : field.name)}`).join(',')}}`;
    }
    default:
      try { JSON.parse(value); } catch (error) { throw new Error(`${where}this is not JSON: ${error.message}`); }
      return value;
  }
}
