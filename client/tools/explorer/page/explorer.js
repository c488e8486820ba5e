// The state of the page, the sources of the state (form, files, URL fragment),
// and the calls to the server.

const START = 'gpt-oss-20b';
const OTHERS = ['vllm', 'llama_cpp', 'mlx', 'gpt_oss', 'deepseek', 'mistral'];
const state = {preset: START, text: '', files: [], readers: ['vllm', 'llama_cpp', 'mlx'], length: 0, layer: '', part: '', share: false, spec: null};
// Every change makes answers to earlier states obsolete.
let generation = 0;

function profileOf(flag) {
  return 'PROFILE_' + flag.toUpperCase();
}

// ---- The URL fragment: the state without files; pasted text on request.

function writeFragment() {
  const parts = new URLSearchParams();
  if (state.text === '' && state.files.length === 0) parts.set('preset', state.preset);
  parts.set('readers', state.readers.join(','));
  if (state.length > 0) parts.set('length', state.length);
  if (state.layer) parts.set('layer', state.layer);
  if (state.part) parts.set('part', state.part);
  if (state.share && state.text) parts.set('config', state.text);
  history.replaceState(null, '', '#' + parts);
}

function readFragment() {
  const parts = new URLSearchParams(location.hash.slice(1));
  state.preset = parts.get('preset') || START;
  if (parts.has('readers')) state.readers = parts.get('readers').split(',').filter(flag => OTHERS.includes(flag));
  const length = Number(parts.get('length'));
  state.length = Number.isInteger(length) && length > 0 ? length : 0;
  state.layer = parts.get('layer') || '';
  state.part = parts.get('part') || '';
  state.text = parts.get('config') || '';
  state.share = state.text !== '';
  Object.assign(state, {files: [], spec: null});
}

// ---- The state as requests.

// The text of the model's configuration: the pasted text, or else the text of
// the first config.json or params.json.
function configText() {
  if (state.text) return state.text;
  const file = state.files.find(each => each.kind === 'DESCRIPTION_KIND_CONFIG') ||
      state.files.find(each => each.kind === 'DESCRIPTION_KIND_PARAMS');
  return file ? file.text : '';
}

// The first GGUF file, if there is no configuration; else null.
function lonelyGguf() {
  if (configText()) return null;
  return state.files.find(each => each.kind === 'DESCRIPTION_KIND_GGUF' && !each.unreadable) || null;
}

function sourceOf(profile) {
  if (state.spec) return {spec: state.spec};
  const source = {profile};
  const text = configText();
  if (text) source.config_json = text;
  else source.preset = state.preset;
  if (/^\d{1,9}$/.test(state.layer)) source.layer_index = Number(state.layer);
  else if (state.layer) source.layer_type = state.layer;
  if (state.part) source.part = 'MODEL_PART_' + state.part.toUpperCase();
  return source;
}

function pastedKind(text) {
  return /"n_heads"\s*:/.test(text) && !/"model_type"\s*:/.test(text) ? 'DESCRIPTION_KIND_PARAMS' : 'DESCRIPTION_KIND_CONFIG';
}

function descriptions() {
  const inputs = state.files.map(each => ({...each}));
  if (state.text) {
    const kind = pastedKind(state.text);
    inputs.unshift({path: kind === 'DESCRIPTION_KIND_PARAMS' ? 'params.json' : 'config.json', kind, text: state.text});
  }
  return inputs;
}

function quoted(text) {
  return /^[A-Za-z0-9_.,:/@%+-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'";
}

// The name of a file as an argument. A name that begins with - must not be a
// flag.
function named(path) {
  return quoted(path.startsWith('-') ? './' + path : path);
}

// A here document. It ends at a line that the text does not have, so that no
// text can become commands.
function hereDocument(text) {
  const lines = text.split(/\r?\n|\r/);
  let end = 'END';
  while (lines.includes(end)) end += '_';
  return ` <<'${end}'\n${text.replace(/\n$/, '')}\n${end}`;
}

// A command line with the page's source: pasted text as a here document, a file
// by its name.
function commandOf(rest) {
  const [name, ...flags] = rest.split(' ');
  const words = ['posenc', name];
  const text = configText();
  let end = '';
  if (state.text) {
    words.push('--config', '-');
    end = hereDocument(text);
  } else if (text) {
    words.push('--config', named(state.files.find(each => each.text === text).path));
  } else if (state.spec) {
    words.push('--config', named(lonelyGguf().path));
    return [...words, ...flags].join(' ');
  } else {
    words.push('--preset', quoted(state.preset));
  }
  if (state.layer) words.push(/^\d+$/.test(state.layer) ? '--layer-index' : '--layer-type', quoted(state.layer));
  if (state.part) words.push('--part', quoted(state.part));
  return [...words, ...flags].join(' ') + end;
}

function doctorCommand() {
  const words = ['posenc', 'doctor', ...descriptions().map(each => named(each.path))];
  if (words.length === 2) words.push('--preset', quoted(state.preset));
  for (const flag of ['hf', ...state.readers]) words.push('--reader', flag);
  if (state.length > 0) words.push('--length', state.length);
  words.push('--json');
  if (!state.text) return words.join(' ');
  // Doctor reads files, so the command writes the text to a file in a new
  // folder.
  return `(cd "$(mktemp -d)" && cat >${descriptions()[0].path} && ${words.join(' ')})` + hereDocument(state.text);
}

// ---- Calls.

const SAMPLES = 2048;  // distances of a curve beyond the first 1024
const FINE = 1024;

// Joins the distances of two answers: 0 to 1023 of the first, and then every
// `step`-th distance up to `reach` of the second.
function joinedDistances(reach, step) {
  const distances = [];
  for (let r = 0; r < Math.min(FINE, reach + 1); ++r) distances.push(r);
  const fine = distances.length;
  const coarse = [];
  for (let i = 0; i * step <= reach; ++i) {
    if (i * step >= fine) {
      coarse.push(i);
      distances.push(i * step);
    }
  }
  return {distances, pick: (near, far) => [...near.slice(0, fine), ...coarse.map(i => far[i])].map(Number)};
}

// AnalyzeRope takes only encodings of one axis. An encoding of several axes is
// therefore analysed as an encoding of one axis with all frequencies, as if the
// distance were the same on every axis.
function oneAxis(source, resolved) {
  if (resolved.axis_of_pair.length === 0 && frequenciesByAxis(resolved).length < 2) return source;
  return {spec: {rotary_dim: 2 * resolved.inv_freq.length, pairing: 'PAIRING_HALF_SPLIT',
                 explicit_frequencies: {values: resolved.inv_freq}}};
}

async function analyze(rope, other, reach, step) {
  const message = {rope, max_distance: String(Math.min(FINE - 1, reach))};
  if (other) message.compare_with = other;
  const [near, far] = await Promise.all([
    ask('analyze', message),
    ask('analyze', {...message, max_distance: String(reach), distance_step: String(step)}),
  ]);
  const {distances, pick} = joinedDistances(reach, step);
  const part = name => pick(near[name], far[name]);
  return {distances, step, decay: part('decay'), similarity: part('similarity'),
          kept: other && near.kept.length > 0 ? part('kept') : undefined};
}

async function resolveReader(flag, style) {
  const reader = {flag, name: NAMES[profileOf(flag)], style};
  const message = {rope: sourceOf('PROFILE_HF'), compare_with: sourceOf(profileOf(flag))};
  if (state.length > 0) message.length = String(state.length);
  try {
    const [compared, resolved] = await Promise.all([ask('resolve', message), ask('resolve', {rope: message.compare_with})]);
    reader.difference = compared.difference;
    reader.resolved = resolved;
  } catch (fault) {
    if (fault.message === GONE) throw fault;
    reader.fault = fault;
  }
  return reader;
}

// Returns the layer to show if an error says that the layers of a model differ:
// full attention, or else the first type with rope, or else the first layer.
function layerOf(message) {
  const differ = /layer_type: the model's layers differ: ([^;]*);/.exec(message);
  if (differ) {
    // "full_attention has no rope, sliding_attention has"
    const types = differ[1].split(', ').filter(type => !type.endsWith(' has no rope')).map(type => type.replace(/ has$/, ''));
    return types.includes('full_attention') ? 'full_attention' : types[0] || '0';
  }
  return /layer_index: some of the model's layers/.test(message) ? '0' : '';
}

// Resolves the encoding; if layers differ, resolves the encoding of the layer
// or layer type that layerOf() returns.
async function resolveReference() {
  const message = () => ({rope: sourceOf('PROFILE_HF'), compare_with: sourceOf('PROFILE_HF'),
                          ...(state.length > 0 ? {length: String(state.length)} : {})});
  try {
    return await ask('resolve', message());
  } catch (fault) {
    if (state.layer || !layerOf(fault.message)) throw fault;
    state.layer = layerOf(fault.message);
    showForm();
    writeFragment();
    return ask('resolve', message());
  }
}

async function caught(promise) {
  try {
    return [await promise, null];
  } catch (fault) {
    return [null, fault];
  }
}

function title() {
  if (state.text) return 'Pasted ' + (pastedKind(state.text) === 'DESCRIPTION_KIND_PARAMS' ? 'params.json' : 'config.json');
  if (state.files.length > 0) return state.files.map(each => each.path).join(', ');
  return state.preset;
}

function showFault(fault) {
  const line = byId('fault');
  line.hidden = !fault;
  line.textContent = fault ? plainFact(fault.message) : '';
}

async function diagnose(view) {
  view.doctorCommand = doctorCommand();
  const readers = ['hf', ...state.readers];
  let inputs = descriptions();
  if (inputs.length === 0) {
    const [description, fault] = await caught(ask('preset', {preset: state.preset}));
    view.doctorFault = fault;
    if (fault) return;
    inputs = [description];
  }
  const message = {inputs, readers};
  if (state.length > 0) message.length = String(state.length);
  [view.diagnosis, view.doctorFault] = await caught(ask('doctor', message));
}

const PANELS = ['spec', 'waves', 'decay', 'table', 'axes'];

async function refresh() {
  const mine = ++generation;
  const stale = () => mine !== generation;
  writeFragment();
  const view = {command: commandOf, readers: []};
  byId('verdict-title').textContent = title();
  const diagnosed = diagnose(view);
  state.spec = null;
  if (state.files.length > 0 && !configText()) {
    // A GGUF without a configuration is shown as llama.cpp reads it.
    const gguf = lonelyGguf();
    const length = state.length > 0 ? {length: String(state.length)} : {};
    const [spec, unread] = gguf ? await caught(ask('gguf', {inputs: [gguf], ...length})) : [null, null];
    if (stale()) return;
    state.spec = spec;
    if (!spec) {
      await diagnosed;
      if (stale()) return;
      showFault(unread || view.doctorFault);
      byId('verdict-text').textContent = 'There is nothing to draw in these files; what they say is under the findings.';
      byId('kept').replaceChildren();
      for (const id of PANELS) emptyPanel(byId(id), 'Needs a config.json or a GGUF file.');
      doctorPanel(view);
      document.documentElement.dataset.shown = mine;
      return;
    }
  }
  const [resolved, fault] = await caught(resolveReference());
  if (stale()) return;
  if (fault) {
    await diagnosed;
    if (stale()) return;
    showFault(fault);
    if (fault.message === GONE) return;
    byId('verdict-text').textContent =
        /^rope\.config_json\b/.test(fault.message) ? 'transformers cannot read this.' : 'There is no answer to this.';
    byId('kept').replaceChildren();
    for (const id of PANELS) emptyPanel(byId(id), 'There is nothing to show.');
    doctorPanel(view);
    return;
  }
  view.resolved = resolved;
  view.length = Number(resolved.difference.length) || state.length || 8192;
  if (state.spec) {
    // A GGUF file states the model's length; a RopeSpec does not.
    await diagnosed;
    if (stale()) return;
    if (view.diagnosis) view.length = Number(view.diagnosis.length);
  }
  view.reach = 2 * view.length;
  const step = Math.max(1, Math.ceil(view.reach / SAMPLES));
  try {
    // A GGUF is shown only as llama.cpp reads it, so no other readers are
    // asked.
    const flags = state.spec ? [] : state.readers;
    view.readers = await Promise.all(flags.map((flag, i) => resolveReader(flag, 's' + (i + 1))));
  } catch (gone) {
    if (!stale()) showFault(gone);
    return;
  }
  if (stale()) return;
  showFault(null);
  byId('verdict-text').textContent = state.spec
      ? 'What llama.cpp computes from this file. Add its config.json to see what other readers make of the model.'
      : verdictText(view.readers);
  specPanel(view);
  wavesPanel(view);
  axesPanel(view);
  const rope = oneAxis(sourceOf('PROFILE_HF'), resolved);
  const rotates = resolved.inv_freq.length > 0;
  await Promise.all([
    diagnosed,
    ...(rotates ? view.readers.filter(reader => !reader.fault).map(async reader => {
      const other = oneAxis(sourceOf(profileOf(reader.flag)), reader.resolved);
      const [analysis] = await caught(analyze(rope, other, view.reach, step));
      if (analysis) Object.assign(reader, {kept: analysis.kept, distances: analysis.distances, coarseStep: step});
    }) : []),
    (async () => {
      if (rotates) [view.analysis, view.analysisFault] = await caught(analyze(rope, null, view.reach, step));
    })(),
    (async () => {
      if (rotates) {
        [view.table, view.tableFault] =
            await caught(ask('table', {rope, rows: String(TABLE_ROWS), positions: {start: '0'}}));
      }
    })(),
  ]);
  if (stale()) return;
  keptPanel(view);
  decayPanel(view);
  tablePanel(view);
  doctorPanel(view);
  document.documentElement.dataset.shown = mine;
}

// Updates the page after a change, and shows every fault.
function changed() {
  refresh().catch(fault => showFault(fault));
}

// ---- The form.

function showForm() {
  byId('preset').value = state.preset;
  byId('config').value = state.text;
  byId('length').value = state.length > 0 ? state.length : '';
  byId('layer').value = state.layer;
  byId('part').value = state.part;
  byId('share').checked = state.share;
  for (const box of document.querySelectorAll('#readers input')) box.checked = state.readers.includes(box.value);
  byId('files').hidden = state.files.length === 0;
  byId('files').textContent = 'Files: ' + state.files.map(each => each.path).join(', ');
}

async function describe(file) {
  const magic = await file.slice(0, 4).text();
  if (magic === 'GGUF' || file.name.endsWith('.gguf')) return describeGguf(file);
  const kind = file.name.startsWith('tokenizer_config') ? 'DESCRIPTION_KIND_TOKENIZER'
      : file.name.startsWith('params') ? 'DESCRIPTION_KIND_PARAMS' : 'DESCRIPTION_KIND_CONFIG';
  if (file.size <= 1 << 20) return {path: file.name, kind, text: await file.text()};
  // Gemma 3's file has 1.2 MB of added tokens; only one key is compared.
  if (kind === 'DESCRIPTION_KIND_TOKENIZER' && file.size <= 64 << 20) {
    try {
      const {model_max_length} = JSON.parse(await file.text());
      return {path: file.name, kind, text: JSON.stringify({model_max_length})};
    } catch {
      return {path: file.name, kind, unreadable: 'not JSON'};
    }
  }
  return {path: file.name, kind, unreadable: `${file.size} bytes; the page takes 1 MiB`};
}

async function takeFiles(files) {
  const [described, fault] = await caught(Promise.all([...files].map(describe)));
  if (fault) {
    showFault(fault);
    return;
  }
  if (described.length === 0) return;
  Object.assign(state, {files: described, text: '', layer: '', part: ''});
  showForm();
  changed();
}

function wire() {
  const readers = byId('readers');
  for (const flag of OTHERS) {
    const box = make('input', {type: 'checkbox', id: 'reader-' + flag, value: flag});
    readers.append(make('span', {}, box, ' ', make('label', {for: box.id}, NAMES[profileOf(flag)])));
    box.addEventListener('change', () => {
      state.readers = OTHERS.filter(each => byId('reader-' + each).checked);
      changed();
    });
  }
  byId('form').addEventListener('submit', event => event.preventDefault());
  byId('preset').addEventListener('change', event => {
    Object.assign(state, {preset: event.target.value, text: '', files: [], layer: '', part: ''});
    showForm();
    changed();
  });
  let typing = 0;
  byId('config').addEventListener('input', event => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      Object.assign(state, {text: event.target.value.trim() ? event.target.value : '', files: [], layer: '', part: ''});
      byId('files').hidden = true;
      changed();
    }, 150);
  });
  byId('length').addEventListener('change', event => {
    const value = Number(event.target.value);
    state.length = Number.isInteger(value) && value > 0 ? value : 0;
    changed();
  });
  for (const name of ['layer', 'part']) {
    byId(name).addEventListener('change', event => {
      state[name] = event.target.value.trim();
      changed();
    });
  }
  byId('share').addEventListener('change', event => {
    state.share = event.target.checked;
    writeFragment();
  });
  byId('clear').addEventListener('click', () => {
    history.replaceState(null, '', location.pathname);
    readFragment();
    state.readers = ['vllm', 'llama_cpp', 'mlx'];
    showForm();
    changed();
  });
  byId('file').addEventListener('change', event => takeFiles(event.target.files));
  document.addEventListener('dragover', event => event.preventDefault());
  document.addEventListener('drop', event => {
    event.preventDefault();
    takeFiles(event.dataTransfer.files);
  });
  addEventListener('hashchange', () => {
    readFragment();
    showForm();
    changed();
  });
  // Draws the figures again, because they depend on the width of the window.
  let width = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth === width) return;
    width = innerWidth;
    changed();
  });
}

async function start() {
  readFragment();
  wire();
  changed();
  const [info, fault] = await caught(ask('info', {}));
  const presets = info ? info.presets : [state.preset];
  for (const name of presets.includes(state.preset) ? presets : [state.preset, ...presets]) byId('preset').append(make('option', {value: name}, name));
  showForm();
  if (fault) showFault(fault);
}

start();
