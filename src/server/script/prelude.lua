-- Replacements for some of Lua's functions in scripts, and the proxies that make shared tables read-only.
--
-- Runs once per interpreter. `native` holds functions of the server, `G` the original globals, `libraries` the tables
-- that become globals. Stores in `native` the values that the server uses.
local native, G, libraries = ...

local error, type, screens = G.error, G.type, native.screens
local pcall, xpcall = screens.catching(G.pcall), screens.handling(G.xpcall)
local setmetatable, getmetatable, rawset, next = G.setmetatable, G.getmetatable, G.rawset, G.next
local rawget, tonumber, floor, ceil, count = G.rawget, G.tonumber, G.math.floor, G.math.ceil, G.select
local insert, concat, sort = G.table.insert, G.table.concat, G.table.sort
local byte, match = G.string.byte, G.string.match
local load, setfenv = G.load, G.setfenv
local caught, is_interruption = native.caught, native.is_interruption

-- Nothing defined below looks up a global, and nothing gives access to the original ones.
setfenv(1, {})

local READONLY = "Attempt to modify a readonly table"

-- Maps a proxy to its inner table, and back.
local inner_of, proxy_of = setmetatable({}, { __mode = "k" }), {}
native.inner_of = inner_of

local function refuse()
  error(READONLY, 2)
end

-- Returns a read-only proxy of a table; the tables in it become read-only too.
local function protect(inner, shown)
  local proxy = proxy_of[inner]
  if proxy then return proxy end
  proxy = {}
  proxy_of[inner], inner_of[proxy] = proxy, inner
  for key, value in next, inner do
    if type(value) == "table" and not inner_of[value] then
      inner[key] = protect(value)
    end
  end
  setmetatable(proxy, { __index = inner, __newindex = refuse, __metatable = shown or false })
  return proxy
end

local function missing(_, name)
  if type(name) ~= "string" and type(name) ~= "number" then
    error("Second argument to luaProtectedTableError must be a string or number", 2)
  end
  error("Script attempted to access nonexistent global variable '" .. match(name, "^%Z*") .. "'", 2)
end

-- Returns a proxy that raises an error for missing names.
local function protect_globals(inner)
  setmetatable(inner, { __index = missing })
  return protect(inner, protect({ __index = missing }))
end

-- pcall: an error table becomes its text, as before Redis 7. Without arguments Redis's pcall calls a stray value.
local function after_pcall(ok, ...)
  if ok then return ok, ... end
  local value = caught((...))
  if is_interruption(value) then error(value, 0) end
  if type(value) == "table" and type(value.err) == "string" then value = value.err end
  return false, value
end
function G.pcall(...)
  if ... == nil and count("#", ...) == 0 then return false, "attempt to call a boolean value" end
  return after_pcall(pcall(...))
end

local function after_catch(ok, ...)
  if ok then return ok, ... end
  local value = caught((...))
  if is_interruption(value) then error(value, 0) end
  return false, value
end
function G.xpcall(run, ...)
  if ... == nil and count("#", ...) == 0 then return xpcall(run) end
  local handler = ...
  return after_catch(xpcall(run, function(value)
    value = caught(value)
    if is_interruption(value) then return value end
    return handler(value)
  end))
end

-- Lua's own functions remain Lua's, except for the calls that are handled here.
local function refuse_call()
  error(READONLY, 0)
end
G.coroutine.resume = screens.resuming(G.coroutine.resume, function(value)
  value = caught(value)
  if is_interruption(value) then error(value, 0) end
  return value
end)
G.coroutine.wrap = screens.wrapping(G.coroutine.create)
G.setmetatable = screens.tables(setmetatable, inner_of, refuse_call)
G.rawset = screens.tables(rawset, inner_of, refuse_call)
-- Converts a number to C's `int`.
local function whole(value, at, name)
  local number = tonumber(value)
  if not number then
    error("bad argument #" .. at .. " to '" .. name .. "' (number expected, got " .. type(value) .. ")", 4)
  end
  number = (number < 0 and ceil(number) or floor(number)) % 2 ^ 32
  if number ~= number then return 0 end
  return number < 2 ^ 31 and number or number - 2 ^ 32
end

-- If many elements have to be moved, this code moves them, as it can be interrupted.
G.table.insert = screens.inserting(insert, inner_of, function(list, place, value)
  if inner_of[list] then refuse_call() end
  place = whole(place, 2, "insert")
  for at = #list, place, -1 do rawset(list, at + 1, rawget(list, at)) end
  rawset(list, place, value)
end)
G.table.remove = screens.removing(G.table.remove, function(list, place)
  local last = #list
  place = whole(place, 2, "remove")
  if place < 1 or place > last then return end
  local value = rawget(list, place)
  for at = place, last - 1 do rawset(list, at, rawget(list, at + 1)) end
  rawset(list, last, nil)
  return value
end)

-- Many elements, or long separators, are joined in parts.
G.table.concat = screens.joining(concat, function(list, separator, first, last)
  separator = separator == nil and "" or separator .. ""
  first = first == nil and 1 or whole(first, 3, "concat")
  last = last == nil and #list or whole(last, 4, "concat")
  -- Twice the memory limit of an interpreter.
  if #separator * (last - first) > 2 ^ 27 then error("not enough memory", 0) end
  local step = floor(10000 / (#separator + 1)) + 1
  local parts, size = {}, 0
  for at = first, last, step do
    parts[size + 1] = concat(list, separator, at, at + step > last and last or at + step - 1)
    parts[size + 2] = separator
    size = size + 2
  end
  return concat(parts, "", 1, size - 1)
end)

-- The same comparisons in the same order, but through a Lua function, so that the sort can be interrupted.
local function less(a, b) return a < b end
G.table.sort = screens.sorting(G.table.sort, function(list) return sort(list, less) end)
G.table.maxn = screens.scanning(G.table.maxn, function(list)
  local most = 0
  for key in next, list do
    if type(key) == "number" and key > most then most = key end
  end
  return most
end)
G.tostring = screens.naming(G.tostring)
G.rawget = native.rawget
G.pairs = native.pairs

-- Long texts are processed by the server's functions, which can be interrupted.
for name, long in next, native.texts do
  G.string[name] = (name == "rep" and screens.repeating or screens.short)(G.string[name], long)
end
-- The second level is the function that this one replaces.
G.unpack = screens.unpacking(G.unpack, function() error("too many results to unpack", 3) end)

-- Searches that could take Lua's own functions long are done by the server's, which can be interrupted.
for name, long in next, native.patterns do
  local screen = name == "find" and screens.finding or name == "gsub" and screens.replacing or screens.searching
  G.string[name] = screen(G.string[name], long)
end
G.string.gfind = G.string.gmatch

-- Scripts must be text: bytecode could do anything.
local BINARY = "bytecode is not accepted"
local compile_stepwise = native.compile_stepwise
G.loadstring = screens.compiling(G.loadstring, function(text, name)
  if byte(text) == 27 then return nil, BINARY end
  return compile_stepwise(text, name)
end)
-- Lua's compiler holds no reference to the chunk name when it first calls a reader function, which may trigger a full
-- garbage collection (as in CVE-2025-49844). So no reader is called from within the compiler: all pieces are gathered
-- before it starts, and no code of a script runs until it is done.
local compile = G.loadstring
local function gather(reader)
  local pieces, size = {}, 0
  while true do
    local piece = reader()
    if piece == nil or piece == "" then return concat(pieces) end
    local kind = type(piece)
    if kind ~= "string" and kind ~= "number" then error("reader function must return a string", 0) end
    size = size + 1
    pieces[size] = piece
    -- Bytecode, which is refused: the rest is not requested.
    if size == 1 and byte(piece) == 27 then return piece end
  end
end
G.load = screens.loading(load, function(reader, name, ...)
  if name ~= nil and type(name) ~= "string" and type(name) ~= "number" then return load(reader, name, ...) end
  local ok, text = pcall(gather, reader)
  if not ok then
    local value = caught(text)
    if is_interruption(value) then error(value, 0) end
    return nil, value
  end
  return compile(text, name or "=(load)")
end)

-- Redis has neither: a script's environment is shared by all its runs and must not be changed.
G.getfenv, G.setfenv = nil, nil
-- Scripts may query the collector and run it, but not stop it.
local collect = G.collectgarbage
G.collectgarbage = screens.collecting(collect, function(option)
  if option ~= nil and option ~= "collect" and option ~= "step" then return 0 end
  -- Present garbage may be found only by the cycle after the one already started.
  for _ = 1, option == "step" and 1 or 2 do
    repeat until collect("step", 1000)
  end
  return option == "step" or 0
end)

-- newproxy gives values a finalizer: code of one script that could run, and fail, in the middle of another one.
G.newproxy = nil
for _, name in next, { "dofile", "loadfile", "print", "module", "require", "package", "io", "debug", "os" } do
  G[name] = nil
end
for name, functions in next, native.replacements do
  for key, value in next, functions do G[name][key] = value end
end
for name, library in next, libraries do G[name] = library end

-- The metatable of strings is shared as well.
local of_strings = getmetatable("")
local globals = protect_globals(G)
of_strings.__metatable = protect({ __index = proxy_of[of_strings.__index] })
G._G = globals
native.globals = globals

-- Globals without proxies, for scripts known to change no global and to obtain no reference to a shared table. Scripts
-- that only read their lists use a separate table, which contains the lists.
local plain, shared_names = setmetatable({}, { __index = missing }), {}
local reading = setmetatable({}, { __index = missing })
for key, value in next, G do
  if type(value) == "table" then insert(shared_names, key) end
  if key ~= "_G" then
    plain[key] = inner_of[value] or value
    reading[key] = plain[key]
  end
end
native.plain_globals, native.reading_globals, native.shared_names = plain, reading, shared_names

-- Functions see the same, except for EVAL-only names; while their library is loaded they see almost nothing.
local function_globals = {}
for key, value in next, G do function_globals[key] = value end
function_globals.redis = protect(native.function_redis)
function_globals.server = function_globals.redis
setmetatable(function_globals, { __index = missing })
local loading = { redis = protect_globals(native.loading_redis) }
loading.server = loading.redis
setmetatable(loading, { __index = missing })
local switch = { __index = function_globals, __newindex = refuse }
switch.__metatable = protect({ __index = missing })
local library_globals = setmetatable({}, switch)
inner_of[library_globals] = function_globals
function_globals._G = library_globals
native.library_globals = library_globals
function native.set_loading(is_loading)
  switch.__index = is_loading and loading or function_globals
end
