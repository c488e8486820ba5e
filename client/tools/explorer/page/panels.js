// The panels, which show the server's answers.

const NAMES = {
  PROFILE_HF: 'transformers', PROFILE_VLLM: 'vLLM', PROFILE_LLAMA_CPP: 'llama.cpp', PROFILE_MLX: 'mlx-lm',
  PROFILE_GPT_OSS: 'gpt-oss', PROFILE_DEEPSEEK: 'DeepSeek', PROFILE_MISTRAL: 'Mistral',
};

function byId(id) {
  return document.getElementById(id);
}

// "posenc ..." under a panel, and a button that copies it.
function copyRow(command) {
  const code = make('code', {}, command);
  const button = make('button', {type: 'button'}, 'Copy as command');
  button.addEventListener('click', async () => {
    let told = 'Copied';
    try {
      await navigator.clipboard.writeText(command);
    } catch (error) {
      // Browsers allow the clipboard only to secure pages.
      getSelection().selectAllChildren(code);
      told = 'Selected: press Ctrl+C';
    }
    button.textContent = told;
    setTimeout(() => { button.textContent = 'Copy as command'; }, 2000);
  });
  return make('div', {class: 'copy'}, button, code);
}

function setCopy(section, command) {
  for (const old of section.querySelectorAll(':scope > .copy')) old.remove();
  section.append(copyRow(command));
}

// Shows only a text in a panel without an answer.
function emptyPanel(section, text) {
  for (const old of section.querySelectorAll(':scope > :not(h2):not(figure)')) old.remove();
  const figure = section.querySelector(':scope > figure');
  if (figure) figure.replaceChildren();
  section.append(make('p', {}, text));
}

function clearText(section) {
  for (const old of section.querySelectorAll(':scope > p, :scope > dl, :scope > ol, :scope > ul')) old.remove();
}

function joined(names) {
  if (names.length < 2) return names.join('');
  return names.slice(0, -1).join(', ') + ' and ' + names[names.length - 1];
}

function agrees(difference) {
  return difference.equal || (Number(difference.max_relative_frequency_difference) === 0 && Math.abs(difference.amplitude_ratio - 1) < 1e-6);
}

// The difference of a reader from the reference, in words.
function distanceText(difference) {
  const parts = [];
  if (Number(difference.first_distance) >= 0) {
    parts.push(`90 % of a score is left up to distance ${Number(difference.first_distance)}, ` +
               `${percent(difference.kept_at_length)} at ${Number(difference.length)}`);
  } else if (Number(difference.max_relative_frequency_difference) > 0) {
    parts.push(`${percent(difference.kept_at_length)} of a score is left at ${Number(difference.length)}`);
  }
  const gain = difference.amplitude_ratio ** 2;
  if (Math.abs(gain - 1) > 1e-6) parts.push('logits x ' + number(Number(gain.toPrecision(3))));
  return parts.join('; ');
}

// "transformers and vLLM agree; llama.cpp and mlx-lm ...: 90 % ...".
function verdictText(readers) {
  const alike = ['transformers'];
  const groups = new Map();
  const refusing = [];
  for (const reader of readers) {
    if (reader.fault) {
      refusing.push(`${reader.name} cannot read it (${plainFact(reader.fault.message)})`);
    } else if (agrees(reader.difference)) {
      alike.push(reader.name);
    } else {
      const why = (reader.difference.explanations || [])[0] || '';
      const key = distanceText(reader.difference);
      if (!groups.has(key)) groups.set(key, {names: [], why});
      groups.get(key).names.push(reader.name);
    }
  }
  const sentences = [];
  // These readers have one position axis, and transformers has three. Along a
  // text both give the same result at every distance.
  const texts = readers.filter(reader => alike.includes(reader.name) &&
                                         (reader.difference.explanations || []).some(why => why.startsWith('position axes')));
  for (const reader of texts) alike.splice(alike.indexOf(reader.name), 1);
  if (alike.length > 1) {
    sentences.push(joined(alike) + ' agree');
  } else if (readers.length === 0) {
    sentences.push('No reader is compared with transformers');
  } else if (groups.size > 0) {
    sentences.push('No other reader agrees with transformers');
  }
  if (texts.length > 0) {
    sentences.push(`${joined(texts.map(reader => reader.name))} ${texts.length > 1 ? 'agree' : 'agrees'} about text, not about images`);
  }
  for (const [text, {names, why}] of groups) {
    sentences.push(`${joined(names)} ${names.length > 1 ? 'differ' : 'differs'}${why ? ' (' + why + ')' : ''}: ${text}`);
  }
  return sentences.concat(refusing).join('; ') + '.';
}

function keptPanel(view) {
  const figure = byId('kept');
  const known = view.readers.filter(reader => reader.kept);
  if (known.length === 0) {
    figure.replaceChildren();
    return;
  }
  const xs = known[0].distances;
  const series = known.map(reader => ({name: reader.name, style: reader.style, ys: reader.kept}));
  const least = Math.min(...series.map(each => Math.min(...each.ys)));
  const first = known.filter(reader => Number(reader.difference.first_distance) >= 0)
      .sort((a, b) => a.difference.first_distance - b.difference.first_distance)[0];
  const caption = first
      ? `Share of a score that is left, kept(r): ${first.name} is the first to lose 10 %, at distance ${Number(first.difference.first_distance)}.`
      : `Share of a score that is left, kept(r): no reader loses 10 % within ${view.length}.`;
  curves(figure, {
    xs, series, low: Math.min(0, Math.floor(least * 4) / 4), high: 1, mark: view.length,
    markLabel: 'claimed context ' + view.length, caption, xName: 'distance',
  });
  const step = known[0].coarseStep;
  figure.append(copyRow(known.map(reader => view.command(
      `resolve --compare-profile ${reader.flag} --json`)).join('\n')));
  figure.append(copyRow(known.map(reader => view.command(
      `analyze --compare-profile ${reader.flag} --max-distance ${view.reach} --distance-step ${step} --json`)).join('\n')));
}

// Returns the fields of a RopeSpec as rows of a list.
function specRows(spec) {
  const rows = [];
  const add = (name, value) => {
    if (Array.isArray(value) && value.length === 0) return;
    if (Array.isArray(value)) rows.push([name, value.length > 8 ? value.length + ' values' : value.map(String).join(', ')]);
    else if (value !== null && typeof value === 'object') for (const [key, inner] of Object.entries(value)) add(name + '.' + key, inner);
    else if (value !== false && value !== '') rows.push([name, typeof value === 'number' ? number(value) : String(value)]);
  };
  for (const [name, value] of Object.entries(spec)) add(name, value);
  return rows;
}

function specPanel(view) {
  const section = byId('spec');
  clearText(section);
  const list = make('dl');
  const add = (name, value, assumed) => list.append(make('dt', {}, name), make('dd', assumed ? {class: 'assumed'} : {}, value));
  for (const [name, value] of specRows(view.resolved.spec)) add(name, value);
  add('head_dim', String(view.resolved.head_dim));
  if (!('amplitude' in view.resolved.spec)) add('amplitude', number(view.resolved.amplitude));
  add('softmax_scale_multiplier', number(view.resolved.softmax_scale_multiplier));
  for (const assumption of view.resolved.assumptions) {
    add(assumption.field, `${assumption.value} (${assumption.reason})`, true);
  }
  for (const warning of view.resolved.warnings) add('warning', warning);
  const hash = make('span', {id: 'hash'}, view.resolved.content_hash);
  list.append(make('dt', {}, 'content hash'), make('dd', {}, hash));
  section.append(list);
  setCopy(section, view.command('resolve --json'));
}

function wavelengths(resolved) {
  return resolved.inv_freq.map(w => w === 0 ? Infinity : 2 * Math.PI / Math.abs(w));
}

function wavesPanel(view) {
  const section = byId('waves');
  clearText(section);
  if (view.resolved.inv_freq.length === 0) {
    emptyPanel(section, 'This layer has no positional encoding (NoPE).');
    return;
  }
  const reference = wavelengths(view.resolved);
  const series = [{name: 'transformers', style: 's0', ys: reference}];
  for (const reader of view.readers) {
    if (reader.resolved && !agrees(reader.difference)) series.push({name: reader.name, style: reader.style, ys: wavelengths(reader.resolved)});
  }
  const within = reference.filter(length => length <= view.length).length;
  dots(section.querySelector('figure'), {
    series, mark: view.length, markLabel: 'claimed context ' + view.length,
    caption: `${within} of ${reference.length} pairs complete a turn within ${view.length} positions.`,
  });
  setCopy(section, view.command('resolve --json'));
}

function decayPanel(view) {
  const section = byId('decay');
  clearText(section);
  if (!view.analysis) {
    emptyPanel(section, view.analysisFault ? view.analysisFault.message : 'There is nothing to analyse.');
    return;
  }
  const {distances, decay, similarity, step} = view.analysis;
  const most = decay[0] || 1;
  const half = distances.find((r, i) => similarity[i] < 0.5);
  curves(section.querySelector('figure'), {
    xs: distances,
    series: [{name: 'similarity', style: 's1', ys: similarity},
             {name: 'decay / decay(0)', style: 's2', ys: decay.map(y => y / most)}],
    low: Math.min(0, Math.floor(Math.min(...similarity) * 4) / 4), high: 1, mark: view.length, markLabel: 'claimed context ' + view.length,
    caption: half === undefined ? `Similarity stays above 0.5 up to ${view.reach}.`
                                : `Similarity between positions falls below 0.5 at distance ${half}; decay is RoFormer's bound (3.4.3).`,
    xName: 'distance',
  });
  setCopy(section, view.command(`analyze --max-distance ${view.reach} --distance-step ${step} --json`));
}

const TABLE_ROWS = 256;

function tablePanel(view) {
  const section = byId('table');
  clearText(section);
  if (!view.table) {
    emptyPanel(section, view.tableFault ? view.tableFault.message : 'There is no table.');
    return;
  }
  const cos = floats(view.table.cos);
  const sin = floats(view.table.sin);
  const pairs = Number(view.table.cos.shape[1]);
  const rows = Number(view.table.cos.shape[0]);
  const most = Math.abs(view.table.amplitude) || 1;
  const canvas = heat(rows, 2 * pairs, (row, column) =>
      (column < pairs ? cos[row * pairs + column] : sin[row * pairs + column - pairs]) / most, false);
  canvas.id = 'heat';
  let row = 0;
  let pair = 0;
  const tell = () => `position ${row}, pair ${pair}: cos ${number(cos[row * pairs + pair])}, sin ${number(sin[row * pairs + pair])}`;
  fill(section.querySelector('figure'), canvas,
       `Positions 0 to ${rows - 1} down; ${pairs} cosines, then ${pairs} sines across` +
       `${view.table.amplitude === 1 ? '' : ', times the amplitude ' + number(view.table.amplitude)}: dark -1, bright 1, each times the amplitude. Left pairs turn fastest.`,
       cursorRow('position', rows - 1, 0, value => { row = value; return tell(); }),
       cursorRow('pair', pairs - 1, 0, value => { pair = value; return tell(); }),
       disclosed('Numbers', ['position', 'cos of pair 0', 'sin of pair 0', `cos of pair ${pairs - 1}`, `sin of pair ${pairs - 1}`],
                 () => Array.from({length: rows}, (x, i) => [String(i), number(cos[i * pairs]), number(sin[i * pairs]),
                   number(cos[i * pairs + pairs - 1]), number(sin[i * pairs + pairs - 1])])));
  setCopy(section, view.command(`table --rows ${rows} --start 0 --json`));
}

const PATCHES = 24;

// Frequencies of each axis, [axes][pairs], 0 where a pair follows another axis.
function frequenciesByAxis(resolved) {
  const w = resolved.inv_freq;
  if (resolved.axis_of_pair.length > 0) {
    const axes = Math.max(...resolved.axis_of_pair) + 1;
    return Array.from({length: axes}, (x, axis) => w.map((each, i) => resolved.axis_of_pair[i] === axis ? each : 0));
  }
  const explicit = resolved.spec.explicit_frequencies;
  const axes = explicit && explicit.axes > 1 ? explicit.axes : 1;
  const pairs = w.length / axes / ((explicit && explicit.heads) || 1);
  return Array.from({length: axes}, (x, axis) => w.slice(axis * pairs, (axis + 1) * pairs));
}

function axesPanel(view) {
  const section = byId('axes');
  const byAxis = view.resolved.inv_freq.length > 0 ? frequenciesByAxis(view.resolved) : [];
  section.hidden = byAxis.length < 2;
  if (section.hidden) return;
  clearText(section);
  const down = byAxis[byAxis.length - 2];
  const across = byAxis[byAxis.length - 1];
  const similarity = (rows, columns) =>
      down.reduce((sum, w, i) => sum + Math.cos(rows * w + columns * across[i]), 0) / down.length;
  const figure = section.querySelector('figure');
  let patch = [PATCHES / 2, PATCHES / 2];
  const draw = () => {
    // Along an axis with low frequencies the similarity changes little over a
    // picture, so the colours span only the actual values.
    const here = (row, column) => similarity(row - patch[0], column - patch[1]);
    let least = 1;
    for (let cell = 0; cell < PATCHES * PATCHES; ++cell) least = Math.min(least, here(Math.floor(cell / PATCHES), cell % PATCHES));
    const canvas = heat(PATCHES, PATCHES, (row, column) => least < 1 ? 2 * (here(row, column) - least) / (1 - least) - 1 : 1, true);
    canvas.id = 'patches';
    const told = axis => make('span', {}, axis);
    const move = (index, label) => {
      const row = cursorRow(label, PATCHES - 1, patch[index], () =>
          `patch (${patch[0]}, ${patch[1]}): below it ${number(similarity(1, 0))}, beside it ${number(similarity(0, 1))}`);
      row.querySelector('input').addEventListener('change', event => {
        patch[index] = Number(event.target.value);
        draw();
        figure.querySelectorAll('input')[index].focus();
      });
      return row;
    };
    fill(figure, canvas, `Similarity of patch (${patch[0]}, ${patch[1]}) with all of ${PATCHES} x ${PATCHES}: its neighbour below has ` +
         `${number(similarity(1, 0))}, beside it ${number(similarity(0, 1))}. Dark ${number(least)}, bright 1.`,
         move(0, 'row'), move(1, 'column'),
         disclosed('Numbers', ['patches apart', 'down', 'across'],
                   () => Array.from({length: PATCHES}, (x, i) => [String(i), number(similarity(i, 0)), number(similarity(0, i))])));
  };
  draw();
  setCopy(section, view.command('resolve --json'));
}

function findingItem(finding) {
  const severity = finding.severity.replace('SEVERITY_', '').toLowerCase();
  const item = make('li', {'data-id': finding.id},
      make('span', {class: 'severity ' + severity}, severity), ' ' + finding.id + ' ', make('div', {}, finding.message));
  for (const reader of finding.readers) {
    // The message says which reader refuses, and why.
    if (reader.says.includes(' refuses: ')) continue;
    const text = Number(reader.first_distance) >= 0
        ? `90 % of a score is left up to distance ${Number(reader.first_distance)}, ${percent(reader.kept_at_length)} at the whole length`
        : `${percent(reader.kept_at_length)} of a score is left at the whole length`;
    const gain = reader.amplitude_ratio ** 2;
    item.append(make('div', {}, `${reader.name}: ${text}${Math.abs(gain - 1) > 1e-6 ? '; logits x ' + number(Number(gain.toPrecision(3))) : ''}`));
  }
  item.append(make('div', {class: 'fix'}, 'fix: ' + finding.fix));
  return item;
}

function counted(count, name) {
  return `${count} ${name}${count === 1 ? '' : 's'}`;
}

function doctorPanel(view) {
  const section = byId('doctor');
  clearText(section);
  for (const old of section.querySelectorAll(':scope > .copy')) old.remove();
  if (view.doctorFault) {
    section.append(make('p', {}, view.doctorFault.message));
    return;
  }
  if (!view.diagnosis) {
    section.append(make('p', {}, 'There are no findings.'));
    return;
  }
  const {inputs, findings, summary} = view.diagnosis;
  const list = make('ul');
  for (const input of inputs) {
    list.append(make('li', {}, `${input.path}: ${input.unreadable || [input.model_type, input.spec].filter(Boolean).join(', ') || 'read'}`));
  }
  section.append(list, make('p', {}, ['error', 'warning', 'note'].map(name => counted(summary[name], name)).join(', ') + '.'));
  const items = make('ol', {class: 'findings'});
  for (const finding of findings) items.append(findingItem(finding));
  if (findings.length > 0) section.append(items);
  setCopy(section, view.doctorCommand);
}
