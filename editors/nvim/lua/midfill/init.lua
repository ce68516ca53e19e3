-- Commands and keys of Midfill. The server makes the fills and puts them in; marks.lua draws, ghost.lua suggests.
local marks = require('midfill.marks')
local places = require('midfill.places')

local M = { status = nil }
local running = {} -- preview token -> { buffer, cancel }
local mapped = {} -- buffer with a pending fill -> what its user had mapped, by name
local fills_of = {} -- buffer -> its pending fills, as the server last told
local old_shown = {} -- buffers that show what stood there before their fills
local deaths = {} -- when a server died
local MAX_DEATHS, DEATHS_MS = 4, 180000
local holes = {} -- buffer -> extmarks of holes that wait to be filled jointly, and of some that no longer do
local wide = {} -- buffer -> { ranges, index, mark, tick } of the hole that is widened
local last_token = 0

---@class midfill.Options set as vim.g.midfill before the plugin loads
---@field keys? boolean whether to map keys (true)
---@field operator? string fills what a motion covers, or the visual selection ('gm')
---@field ghost_accept? string takes the ghost text, in insert mode ('<C-l>')
---@field ghost_word? string takes the next word of the ghost text, in insert mode ('<M-l>')
---@field ghost_line? string takes the next line of the ghost text, in insert mode ('<M-j>')
---@field accept? string keeps a pending fill ('<C-y>')
---@field discard? string puts back what was there before a pending fill ('<C-e>')
---@field reroll? string fills a pending fill again, keeping its surest tokens and what was typed ('<C-g>')
---@field widen? string shows the next larger hole around the cursor; the one that is shown is filled by `fill` ('<M-k>')
---@field shrink? string shows the next smaller one, at last none ('<M-j>')
---@field fill? string fills the holes that are shown jointly ('<M-CR>')
---@field old? string shows what stood there before the pending fills, and hides it ('<C-t>')
---@field accept_hunk? string keeps the changed lines at the cursor alone ('g<C-y>')
---@field discard_hunk? string puts back the changed lines at the cursor alone ('g<C-e>')
---@field next_edit? string makes the last change again where it fits the cursor's line, and goes to the next such place ('<M-.>')
---@field next? string shows the next alternative of a pending fill ('<C-n>')
---@field torch_index? string where `:Midfill install` takes torch from; '' is pip's own index (PyTorch's for CPUs where there is no GPU)
local options = {
  keys = true, operator = 'gm', ghost_accept = '<C-l>', ghost_word = '<M-l>', ghost_line = '<M-j>', accept = '<C-y>', discard = '<C-e>', reroll = '<C-g>',
  next = '<C-n>', old = '<C-t>', accept_hunk = 'g<C-y>', discard_hunk = 'g<C-e>',
  next_edit = '<M-.>', widen = '<M-k>', shrink = '<M-j>', fill = '<M-CR>',
}

local function fail(message)
  vim.notify(message, vim.log.levels.ERROR)
end

local function client_of(buffer)
  local client = vim.lsp.get_clients({ name = 'midfill', bufnr = buffer })[1]
  if client and vim.api.nvim_buf_get_name(buffer) ~= '' then
    return client
  end
  local command = vim.lsp.config.midfill.cmd
  local is_missing = type(command) == 'table' and vim.fn.executable(command[1]) == 0
  local is_starting = vim.lsp.get_clients({ name = 'midfill', bufnr = buffer, _uninitialized = true })[1]
  fail('Midfill: ' .. (client and 'this buffer has no name; save it first' or is_starting and 'the server is starting; try again in a moment'
    or is_missing and 'the server is missing or broken; `:Midfill install` installs it' or 'no server runs for this buffer; see :checkhealth midfill'))
end

--- The keys of pending fills; what the user had mapped there in this buffer comes back behind them.
local function map_keys(buffer, is_on)
  local before = mapped[buffer]
  if is_on == (before ~= nil) or not options.keys then
    return
  end
  mapped[buffer] = is_on and {} or nil
  vim.api.nvim_buf_call(buffer, function()
    for _, name in ipairs({ 'accept', 'discard', 'reroll', 'next', 'old', 'accept_hunk', 'discard_hunk' }) do
      local key = options[name]
      if is_on then
        local old = vim.fn.maparg(key, 'n', false, true)
        mapped[buffer][name] = old.buffer == 1 and old or nil
        vim.keymap.set('n', key, function() (name == 'old' and M.toggle_old or M.run)(name, buffer) end, { buffer = buffer, desc = 'Midfill: ' .. name })
      else
        pcall(vim.keymap.del, 'n', key, { buffer = buffer })
        if before[name] then
          vim.fn.mapset('n', false, before[name])
        end
      end
    end
  end)
end

--- A fill no longer runs.
local function end_fill(buffer, id)
  for _, token in ipairs(marks.tokens_of(buffer, id)) do
    running[token] = nil
    marks.clear_preview(buffer, token)
  end
end

--- Draws all fills that are pending in a document, as the server says, and maps their keys.
function M.show_pending(params, buffer)
  buffer = buffer or places.loaded_buffer(params.uri)
  if not (buffer and vim.api.nvim_buf_is_loaded(buffer)) then
    return
  end
  for _, fill in ipairs(params.fills) do
    end_fill(buffer, fill.id) -- its answer comes a moment later
  end
  local latest = params.fills[#params.fills]
  vim.b[buffer].midfill_pending = latest and latest.id
  fills_of[buffer], old_shown[buffer] = params.fills, latest and old_shown[buffer]
  marks.pending(buffer, params.fills, options, old_shown[buffer])
  map_keys(buffer, latest ~= nil)
end

--- Shows what stood there before the pending fills of a buffer, or hides it.
function M.toggle_old(_, buffer)
  buffer = buffer or vim.api.nvim_get_current_buf()
  if not fills_of[buffer] or #fills_of[buffer] == 0 then
    return fail('Midfill: nothing is pending here')
  end
  old_shown[buffer] = not old_shown[buffer]
  marks.pending(buffer, fills_of[buffer], options, old_shown[buffer])
end

local function take_answer(buffer, token, failed)
  return function(error)
    if token then -- previews of other fills stay
      running[token] = nil
      marks.clear_preview(buffer, token)
    end
    local _ = error and failed and failed()
    local is_told = error and (error.code == -32800 or vim.tbl_get(error, 'data', 'shown'))
    return error and not is_told and vim.api.nvim_buf_is_valid(buffer) and fail(error.message)
  end
end

--- Sends what `:Midfill cancel` can end: a fill or a reroll.
local function ask(client, method, params, buffer, token, failed)
  local _, id = client:request(method, params, take_answer(buffer, token, failed), buffer)
  running[token] = { buffer = buffer, cancel = function() client:cancel_request(id) end }
end

local function next_token(buffer)
  last_token = last_token + 1
  marks.expect(last_token, buffer)
  return last_token
end

--- Stops the fill that runs at the cursor, else the latest of this buffer.
function M.cancel()
  local buffer, row = vim.api.nvim_get_current_buf(), vim.api.nvim_win_get_cursor(0)[1] - 1
  local own = vim.tbl_filter(function(token) return running[token].buffer == buffer end, vim.tbl_keys(running))
  table.sort(own)
  local here = vim.tbl_filter(function(token) return marks.is_at(token, row) end, own)
  local token = here[#here] or own[#own]
  if not token then
    return fail('Midfill: no fill is running here')
  end
  running[token].cancel()
  running[token] = nil -- Neovim keeps to itself that a request was cancelled
  marks.clear_preview(buffer, token)
end

local function is_no_block(range)
  return range ~= false or fail('Midfill: a block is not one hole; select characters or lines')
end

--- Asks for a fill of `what` (body, selection, stubs, hole) and has the server put it in as one undo step.
--- Each of `ranges`, by default the cursor, is { row, byte column, row, byte column } from 0, the end not in it.
function M.fill(what, ranges, extra, failed)
  local buffer = vim.api.nvim_get_current_buf()
  local client = is_no_block(ranges and ranges[1]) and client_of(buffer)
  if not client then
    return failed and failed()
  end
  local token = next_token(buffer)
  local params = vim.tbl_extend('force', {
    uri = vim.uri_from_bufnr(buffer), what = what, version = vim.lsp.util.buf_versions[buffer], apply = true,
    ranges = vim.tbl_map(function(range) return places.to_server(client, buffer, range) end, ranges or { places.at_cursor() }), previewToken = token, alternatives = 3,
  }, extra or {})
  ask(client, 'midfill/fill', params, buffer, token, failed)
end

--- The command that fills of a workspace must pass: what its user has entered, never what a file in it says.
local function known_command(root, entered)
  local file = vim.fn.stdpath('state') .. '/midfill-commands.json'
  local is_read, known = pcall(function() return vim.json.decode(table.concat(vim.fn.readfile(file))) end)
  known = is_read and known or {}
  if entered then
    known[root] = entered
    vim.fn.mkdir(vim.fn.stdpath('state'), 'p')
    vim.fn.writefile({ vim.json.encode(known) }, file)
  end
  return known[root]
end

--- Fills the body at the cursor until a command passes, which is asked for once for a workspace; `is_new` asks again.
function M.fill_until(is_new)
  local buffer = vim.api.nvim_get_current_buf()
  local client = client_of(buffer)
  local root = client and (client.root_dir or vim.fs.dirname(vim.api.nvim_buf_get_name(buffer)))
  local known = client and not is_new and known_command(root)
  if not client or known then
    return client and M.fill('body', nil, { ['until'] = known })
  end
  client:request('midfill/tests', { uri = vim.uri_from_bufnr(buffer) }, function(_, result)
    local prompt = ('Fill until this passes, in a sandbox, on a copy of %s: '):format(root)
    vim.ui.input({ prompt = prompt, default = result and result.commands[1] or '' }, function(entered)
      if entered and entered ~= '' then
        known_command(root, entered)
        M.fill('body', nil, { ['until'] = entered })
      end
    end)
  end, buffer)
end

--- Runs accept, discard, reroll, shorter, longer, next or finish on the fill at the cursor, else the buffer's latest;
--- accept and discard with `_hole` or `_hunk` behind on that part of it.
function M.run(name, buffer)
  buffer = buffer or vim.api.nvim_get_current_buf()
  local client = client_of(buffer)
  if not client then
    return
  end
  local argument = { uri = vim.uri_from_bufnr(buffer), position = places.to_server(client, buffer, places.at_cursor()).start }
  if name == 'shorter' or name == 'longer' then
    argument.length, name = name, 'reroll'
  end
  local verb, part = name:match('^(%a+)_(%a+)$')
  name, argument.part = verb or name, part
  local params = { command = 'midfill.' .. name, arguments = { argument } }
  if name == 'reroll' then
    argument.previewToken = next_token(buffer)
    return ask(client, 'workspace/executeCommand', params, buffer, argument.previewToken)
  end
  client:request('workspace/executeCommand', params, function(error, result)
    if name == 'discard' and result then -- as in M.cancel
      end_fill(buffer, result.id)
    end
    take_answer(buffer)(error)
  end, buffer)
end

--- Draws the places where the last change may be made again, as the server says.
function M.show_repeats(params)
  local buffer = places.loaded_buffer(params.uri)
  if buffer then
    marks.repeats(buffer, params.places, options.next_edit)
  end
end

--- Makes the last change again where it fits the cursor's line and goes to the next place; 'all' makes it everywhere, 'dismiss' nowhere.
function M.next_edit(action)
  local buffer = vim.api.nvim_get_current_buf()
  local client = client_of(buffer)
  local place = client and places.to_server(client, buffer, places.at_cursor()).start
  local argument = { uri = vim.uri_from_bufnr(buffer), position = place, action = action }
  return client and client:request('workspace/executeCommand', { command = 'midfill.repeat', arguments = { argument } }, take_answer(buffer), buffer)
end

--- Remembers the selection, or the cursor, as one of the holes that `:Midfill holes` fills jointly.
function M.add(range, buffer)
  buffer = buffer or vim.api.nvim_get_current_buf()
  if is_no_block(range) then
    holes[buffer] = vim.list_extend(holes[buffer] or {}, { marks.hole(buffer, range) })
  end
end

--- Fills all remembered holes of the buffer in one pass: each sees the others while they are written.
function M.fill_holes()
  local buffer = vim.api.nvim_get_current_buf()
  local ranges = vim.iter(holes[buffer] or {}):map(function(mark) return marks.take_hole(buffer, mark) end):totable()
  holes[buffer] = nil
  if #ranges == 0 then
    return fail('Midfill: add holes first, with :Midfill add')
  end
  local tick = vim.b[buffer].changedtick
  M.fill('selection', ranges, nil, function() -- in an unchanged text they wait again
    local is_same = vim.api.nvim_buf_is_loaded(buffer) and vim.b[buffer].changedtick == tick
    return is_same and vim.tbl_map(function(range) M.add(range, buffer) end, ranges)
  end)
end

local function show_wide(buffer)
  local state = wide[buffer]
  if state.mark then
    marks.take_hole(buffer, state.mark)
  end
  state.mark = state.ranges[state.index] and marks.hole(buffer, state.ranges[state.index])
  holes[buffer] = vim.list_extend(holes[buffer] or {}, { state.mark })
end

--- Shows a hole at the cursor that `:Midfill holes` fills, then with each call the next larger one; `step` -1 the next smaller.
function M.widen(step)
  local buffer = vim.api.nvim_get_current_buf()
  local client, state = client_of(buffer), wide[buffer]
  if not client then
    return
  end
  if state and state.tick == vim.b.changedtick and vim.tbl_contains(holes[buffer] or {}, state.mark) then
    state.index = math.min(state.index + (step or 1), #state.ranges)
    return show_wide(buffer)
  end
  local params = { uri = vim.uri_from_bufnr(buffer), range = places.to_server(client, buffer, places.at_cursor()), version = vim.lsp.util.buf_versions[buffer] }
  client:request('midfill/holes', params, function(error, result)
    if vim.lsp.util.buf_versions[buffer] ~= params.version then
      return -- the answer is for another text
    end
    if error or #result.ranges == 0 then
      return fail(error and error.message or 'Midfill: nothing to fill is around the cursor')
    end
    local ranges = vim.tbl_map(function(range) return places.from_server(client, buffer, range) end, result.ranges)
    wide[buffer] = { ranges = ranges, index = 1, tick = vim.api.nvim_buf_get_changedtick(buffer) }
    show_wide(buffer)
  end, buffer)
end

--- Makes no ghost text for some minutes, 0 ends that.
function M.snooze(minutes)
  local client = client_of(vim.api.nvim_get_current_buf())
  return client and client:request('workspace/executeCommand', { command = 'midfill.snooze', arguments = { { minutes = minutes or 5 } } }, take_answer(0), 0)
end

--- The operator: fills what the motion covered.
function M.operator(kind)
  if kind == nil then
    vim.o.operatorfunc = "v:lua.require'midfill'.operator"
    return 'g@'
  end
  M.fill('selection', { places.marked('[', ']', kind) })
end

local function forget(buffer)
  for token, fill in pairs(running) do
    if fill.buffer == buffer then
      running[token] = nil
      pcall(fill.cancel)
    end
  end
  if vim.api.nvim_buf_is_loaded(buffer) then
    marks.clear_preview(buffer)
    marks.repeats(buffer, {})
    M.show_pending({ fills = {} }, buffer)
  end
end

--- After a server's end, which LspDetach clears from the screen: one that nobody asked to end is started again.
function M.recover(code, signal)
  M.status = nil
  if code == 0 and signal == 0 or signal == 15 or code == 143 or vim.v.exiting ~= vim.NIL then
    return
  end
  local now = vim.uv.now()
  deaths = vim.tbl_filter(function(time) return now - time < DEATHS_MS end, deaths)
  table.insert(deaths, now)
  if #deaths > MAX_DEATHS then
    return fail('Midfill: the server ended again and again; see :checkhealth midfill')
  end
  fail('Midfill: the server ended; it is started again. Fill again')
  vim.defer_fn(M.start, 100) -- the dead one would be used again until it is off Neovim's list
end

--- Starts the server for the files that are open.
function M.start()
  for _, buffer in ipairs(vim.tbl_filter(vim.api.nvim_buf_is_loaded, vim.api.nvim_list_bufs())) do
    vim.api.nvim_exec_autocmds('FileType', { group = 'nvim.lsp.enable', buffer = buffer, modeline = false })
  end
end

--- A word or two for a statusline: '', 'midfill', 'midfill …' while it fills, 'midfill !' after a failure.
function M.statusline()
  local status = M.status
  return status and 'midfill' .. (status.snoozing and ' z' or '') .. (status.busy and ' …' or status.kind == 'Error' and ' !' or '') or ''
end

local subcommands = {
  body = function() M.fill('body') end,
  stubs = function() M.fill('stubs', {}) end,
  tests = function() M.fill_until() end,
  other_tests = function() M.fill_until(true) end,
  hole = function() M.fill('hole') end,
  holes = M.fill_holes,
  old = function() M.toggle_old() end,
  widen = function() M.widen(1) end,
  shrink = function() M.widen(-1) end,
  snooze = function() M.snooze() end,
  wake = function() M.snooze(0) end,
  cancel = function() M.cancel() end,
  next_edit = function() M.next_edit() end,
  all_edits = function() M.next_edit('all') end,
  dismiss = function() M.next_edit('dismiss') end,
  install = function() require('midfill.install').install() end,
  uninstall = function() require('midfill.install').uninstall() end,
  cancel_install = function() require('midfill.install').cancel() end,
  status = function() vim.print(M.status or 'Midfill has not been used yet') end,
  selection = function(command)
    local row = vim.fn.line('.') - 1
    M.fill('selection', { vim.F.if_nil(places.selected(command), { row, 0, row, #vim.api.nvim_get_current_line() }) })
  end,
  add = function(command) M.add(vim.F.if_nil(places.selected(command), places.at_cursor())) end,
}
for _, name in ipairs({ 'accept', 'discard', 'reroll', 'shorter', 'longer', 'next', 'finish', 'accept_hole', 'discard_hole', 'accept_hunk', 'discard_hunk' }) do
  subcommands[name] = function() M.run(name) end
end

--- Without the lengths that the model of a pending fill does not heed.
local function complete(lead)
  local lengths = vim.tbl_get(fills_of, vim.api.nvim_get_current_buf(), 1, 'lengths') or { 'shorter', 'longer' }
  local function is_offered(name) return (name ~= 'shorter' and name ~= 'longer') or vim.tbl_contains(lengths, name) end
  return vim.tbl_filter(function(name) return vim.startswith(name, lead) and is_offered(name) end, vim.fn.sort(vim.tbl_keys(subcommands)))
end

function M.setup()
  vim.g.loaded_midfill = true
  options = vim.tbl_extend('force', options, vim.g.midfill or {})
  vim.api.nvim_create_user_command('Midfill', function(command)
    local run = subcommands[command.args == '' and 'body' or command.args]
    if not run then
      return fail('Midfill: no such command; known are ' .. table.concat(complete(''), ', '))
    end
    run(command)
  end, { nargs = '?', range = true, complete = complete, desc = 'Fill gaps in code' })
  if options.keys then
    vim.keymap.set('n', options.operator, M.operator, { expr = true, desc = 'Midfill: fill what a motion covers' })
    for _, name in ipairs({ 'widen', 'shrink', 'fill' }) do
      vim.keymap.set('n', options[name], subcommands[name == 'fill' and 'holes' or name], { desc = 'Midfill: ' .. name })
    end
    vim.keymap.set({ 'n', 'i' }, options.next_edit, subcommands.next_edit, { desc = 'Midfill: next edit' })
    vim.keymap.set('x', options.operator, ':Midfill selection<CR>', { silent = true, desc = 'Midfill: fill the selection' })
  end
  vim.api.nvim_create_autocmd('LspDetach', { callback = function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == 'midfill' then
      forget(event.buf) -- the next server counts its fills from 1 again
    end
  end })
  vim.lsp.commands['midfill.until'] = function() M.fill_until() end
  require('midfill.ghost').setup(options)
  vim.lsp.enable('midfill')
end

return M
