-- Random fills, moves, splits, undos, keeps, discards, rerolls, kills and ends of running fills over two buffers of a real Neovim, beside
-- a plain model that knows every text and what must be pending where. SEQUENCES of STEPS operations each, from SEED; prints what went
-- wrong. Long sequences over few places: two fills have to wait in one buffer before a key can act on the wrong one.
local FILL, GUESS, NUM_BODIES, NUM_BUFFERS = "return 'ß😀'", "return '😀ß' or x", 3, 2
local WAIT_MS = tonumber(vim.env.TEST_WAIT_MS or 60000)
local notices, known, current, last_id = {}, {}, nil, 0
vim.notify = function(message) table.insert(notices, message) end
local SEED = tonumber(vim.env.SEED or 1)

local function client() return vim.lsp.get_clients({ name = 'midfill', bufnr = 0 })[1] end
local function lines() return vim.api.nvim_buf_get_lines(0, 0, -1, false) end
local function pick(list) return list[math.random(#list)] end

local function configure(values)
  local settings = vim.tbl_extend('force', { model = 'fast', steps = 1, trigger = 'manual' }, values or {})
  client():notify('workspace/didChangeConfiguration', { settings = { midfill = settings } })
end

local function wait(what, condition)
  assert(vim.wait(WAIT_MS, condition, 2), 'waited in vain for ' .. what)
end

local function settle()
  assert(client():request_sync('midfill/status', vim.empty_dict(), WAIT_MS, 0))
end

--- Rows of the fills that the plugin shows as pending in this buffer.
local function shown_rows()
  local namespace, rows = vim.api.nvim_get_namespaces()['midfill.pending'], {}
  for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { details = true })) do
    if mark[4].virt_text_pos == 'eol' and mark[4].virt_text then
      table.insert(rows, mark[2])
    end
  end
  table.sort(rows)
  return rows
end

local function row_of(text, body)
  for row, line in ipairs(text) do
    if line == ('def f%d(a):'):format(body) then
      return row
    end
  end
end

local function text_now() return current.texts[current.now].lines end

local function expected_rows()
  local rows = vim.tbl_map(function(fill) return row_of(text_now(), fill.body) end, vim.tbl_values(current.pending))
  table.sort(rows)
  return rows
end

local function add(body, line, maker)
  local text = vim.deepcopy(text_now())
  local row = body and row_of(text, body) + 1 or 1
  if text[row] == line then
    return
  end
  text[row] = line
  current.now = current.now + 1
  current.texts = vim.list_slice(current.texts, 1, current.now - 1)
  current.texts[current.now] = { lines = text, maker = maker }
end

--- The fill that a key at a body must act on: the one there, else the buffer's latest.
local function meant(body)
  local here, all = {}, vim.tbl_keys(current.pending)
  for id, fill in pairs(current.pending) do
    table.insert(here, fill.body == body and id or nil)
  end
  table.sort(here)
  table.sort(all)
  return here[#here] or all[#all]
end

local function put(body, line, held, others, id)
  last_id = id or last_id + 1
  current.pending[last_id] = { body = body, held = held, others = others }
  add(body, line, last_id)
end

local function line_of(body) return text_now()[row_of(text_now(), body) + 1] end

--- Whether a fill of the body would change it, and none waits there.
local function is_free(body)
  for _, fill in pairs(current.pending) do
    if fill.body == body then return false end
  end
  return not line_of(body):find(FILL, 1, true) and not line_of(body):find(GUESS, 1, true)
end

--- Rows on which a preview stands.
local function preview_rows()
  local namespace = vim.api.nvim_get_namespaces()['midfill.preview']
  local rows = vim.tbl_map(function(mark) return mark[2] end, vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, {}))
  table.sort(rows)
  return rows
end

--- Two fills run; the one at `body` is ended by `name`, the other one goes on.
local function end_one_of_two(name, body)
  local free = vim.tbl_filter(function(other) return other ~= body and is_free(other) end, { 1, 2, 3 })
  if not is_free(body) or #free == 0 then
    return
  end
  local other, folder = pick(free), vim.fn.tempname()
  vim.fn.mkdir(folder)
  configure({ model = 'gate:' .. folder, steps = 40 })
  local order, ids = math.random(2) == 1 and { body, other } or { other, body }, {}
  for _, each in ipairs(order) do
    last_id = last_id + 1
    ids[each] = last_id
    vim.api.nvim_win_set_cursor(0, { row_of(text_now(), each) + 1, 6 })
    vim.cmd('Midfill body')
  end
  local rows = vim.tbl_map(function(each) return row_of(text_now(), each) end, { math.min(body, other), math.max(body, other) })
  wait('both previews', function() return vim.deep_equal(preview_rows(), rows) end)
  vim.api.nvim_win_set_cursor(0, { row_of(text_now(), body) + 1, 6 })
  local last, held, held_there = last_id, line_of(body), line_of(other)
  vim.cmd('Midfill ' .. name)
  settle()
  if name == 'finish' or name == 'accept' then
    vim.fn.writefile({}, folder .. '/1')
    put(body, '    ' .. GUESS, held, nil, ids[body])
  end
  wait('the end of one', function() return vim.deep_equal(preview_rows(), { row_of(text_now(), other) }) end)
  wait('its text', function() return vim.deep_equal(lines(), text_now()) end)
  vim.cmd('let &l:undolevels = &l:undolevels')
  vim.fn.writefile({}, folder .. '/open')
  put(other, '    ' .. FILL, held_there, { 'return 1', 'return 2', FILL }, ids[other])
  last_id = last
  wait('the other one', function() return vim.deep_equal(lines(), text_now()) end)
  configure()
end

--- Each goes to its place, tells the model what must come of it, and does it.
local operations = {}

function operations.fill(body)
  if is_free(body) then
    put(body, '    ' .. FILL, line_of(body), { 'return 1', 'return 2', FILL })
    vim.cmd('Midfill body')
  end
end

for _, name in ipairs({ 'finish', 'cancel', 'accept', 'discard' }) do
  operations['running_' .. name] = function(body) end_one_of_two(name, body) end
end

local function decide(name, puts_back)
  return function(body)
    local id = meant(body)
    vim.cmd('Midfill ' .. name)
    if not id then
      return wait('the sentence', function() return #notices > 0 end)
    end
    local fill = current.pending[id]
    current.pending[id] = nil
    if puts_back then
      add(fill.body, fill.held)
    end
  end
end
operations.accept, operations.accept_hunk = decide('accept'), decide('accept_hunk')
operations.discard, operations.discard_hunk = decide('discard', true), decide('discard_hunk', true)
operations.discard_hole = decide('discard_hole', true)

function operations.reroll(body)
  local id = meant(body)
  if id then
    local fill, before = current.pending[id], text_now()
    vim.cmd('Midfill reroll')
    local row = row_of(before, fill.body) + 1
    wait('the reroll', function() return lines()[row] ~= before[row] end)
    assert(lines()[row]:find('^    .*%+ new$'), lines()[row])
    current.pending[id] = nil
    put(fill.body, lines()[row], fill.held)
  end
end

function operations.next(body)
  local id = meant(body)
  if id and current.pending[id].others then
    local fill = current.pending[id]
    current.pending[id] = nil
    local first = table.remove(fill.others, 1)
    put(fill.body, '    ' .. first, fill.held, vim.list_extend(fill.others, { first }))
    local before = vim.b.midfill_pending
    vim.cmd('Midfill next')
    wait('its id, by which the next command names it', function() return vim.b.midfill_pending ~= before end)
  end
end

function operations.undo()
  if current.now > 1 then
    current.pending[current.texts[current.now].maker or 0] = nil
    current.now = current.now - 1
    vim.cmd('silent undo')
  end
end

function operations.redo()
  if current.now < #current.texts then
    current.now = current.now + 1
    vim.cmd('silent redo')
  end
end

function operations.type(body)
  local line = text_now()[row_of(text_now(), body) + 1]
  if math.random() < 0.5 and line:find('^    ret') then
    add(body, line:sub(1, 7) .. 'ü' .. line:sub(8))
    vim.api.nvim_buf_set_text(0, row_of(text_now(), body), 7, row_of(text_now(), body), 7, { 'ü' })
  else
    add(nil, text_now()[1] .. 'ü')
    vim.api.nvim_buf_set_lines(0, 0, 1, false, { text_now()[1] })
  end
end

function operations.tab()
  current = pick(known)
  vim.cmd('buffer ' .. current.buffer)
end

function operations.split()
  vim.cmd(#vim.api.nvim_list_wins() > 1 and 'only' or 'split')
end

function operations.old()
  if next(current.pending) then
    require('midfill').toggle_old()
  end
end

local function kill()
  local dead = client()
  vim.uv.kill(vim.tbl_filter(function(pid)
    return table.concat(vim.fn.readfile('/proc/' .. pid .. '/cmdline'), ' '):find('scripted_server', 1, true)
  end, vim.api.nvim_get_proc_children(vim.fn.getpid()))[1], 'sigkill')
  wait('another server', function() return client() and client().id ~= dead.id and client().initialized end)
  configure()
  for _, each in ipairs(known) do
    each.pending = {}
  end
  last_id = 0
end

--- What is not as the model says, in any buffer; nil where all is.
local function find_wrong()
  local here = current
  for _, each in ipairs(known) do
    current = each
    local wrong = vim.api.nvim_buf_call(each.buffer, function()
      local got, wanted = { lines(), shown_rows() }, { text_now(), expected_rows() }
      return not vim.deep_equal(got, wanted) and ('got %s\nwanted %s'):format(vim.inspect(got), vim.inspect(wanted)) or nil
    end)
    if wrong then
      current = here
      return wrong
    end
  end
  current = here
end

local function start(number)
  vim.cmd('silent only')
  for _, each in ipairs(known) do
    vim.cmd('bwipeout! ' .. each.buffer)
  end
  known = {}
  for index = 1, NUM_BUFFERS do
    local text = { '# 😀' }
    for body = 1, NUM_BODIES do
      vim.list_extend(text, { ('def f%d(a):'):format(body), ('    return %d  # ß'):format(body), '', '' })
    end
    vim.cmd('enew!')
    vim.api.nvim_buf_set_name(0, ('%s/model%d_%d.py'):format(vim.env.TEST_FOLDER, number, index))
    vim.bo.bufhidden, vim.bo.undolevels = 'hide', -1
    vim.api.nvim_buf_set_lines(0, 0, -1, false, text)
    vim.bo.undolevels = 1000
    vim.bo.filetype = 'python'
    known[index] = { buffer = vim.api.nvim_get_current_buf(), texts = { { lines = text } }, now = 1, pending = {} }
  end
  current = known[NUM_BUFFERS]
  wait('the server', function() return client() and client().initialized end)
  configure()
end

local names = vim.tbl_keys(operations)
vim.list_extend(names, { 'fill', 'fill', 'fill', 'fill', 'accept', 'discard', 'next', 'undo', 'undo', 'running_cancel', 'running_cancel', 'running_finish' })
table.sort(names)

--- An edit that is not the server's ends the fills whose lines hold again what they held.
for _, name in ipairs({ 'undo', 'redo', 'type' }) do
  local run = operations[name]
  operations[name] = function(body)
    local before = text_now()
    run(body)
    for id, fill in pairs(current.pending) do
      local row = row_of(before, fill.body) + 1
      if before[row] ~= text_now()[row] and text_now()[row] == fill.held then
        current.pending[id] = nil
      end
    end
  end
end

local function step(trace)
  local name, body = pick(names), math.random(NUM_BODIES)
  table.insert(trace, name .. body)
  notices = {}
  vim.cmd('let &l:undolevels = &l:undolevels') -- what follows is an undo step of its own
  vim.api.nvim_win_set_cursor(0, { row_of(text_now(), body) + 1, 6 })
  operations[name](body)
  settle()
  vim.wait(WAIT_MS, function() return not find_wrong() end, 2)
  settle()
  return find_wrong()
end

local done, wrong = 0, 0
local function run()
  for number = 1, tonumber(vim.env.SEQUENCES or 10) do
    math.randomseed(SEED + number) -- each can be run again by itself
    start(number)
    if number % 25 == 0 and number <= 100 then
      kill()
    end
    local trace = {}
    for _ = 1, tonumber(vim.env.STEPS or 40) do
      local is_fine, problem = pcall(step, trace)
      done = done + 1
      if not is_fine or problem then
        wrong = wrong + 1
        io.stdout:write(('WRONG in SEED=%d SEQUENCES=1 after %s: %s\n%s\n'):format(SEED + number - 1, table.concat(trace, ' '), problem, vim.inspect(notices)))
        io.stdout:flush()
        break
      end
    end
  end
end

local is_over, fault = xpcall(run, debug.traceback)
if not is_over then
  io.stdout:write(fault .. '\n')
end
io.stdout:write(('%d operations, %d wrong on %s\n'):format(done, wrong, tostring(vim.version())))
io.stdout:flush()
os.exit(is_over and wrong == 0 and 0 or 1)
