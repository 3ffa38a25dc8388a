-- Policies that HAProxy does not have, for one backend; HAProxy 2.6 gives a script no arguments.
--
--   setenv RIVAL POLICY                                    in global; POLICY.lua lies beside this
--   setenv RIVAL_RULES DIRECTORY
--   setenv RIVAL_SERVICE BACKEND
--   lua-load-per-thread DIRECTORY/rival.lua
--   use-server %[lua.rival] if TRUE                        in the backend
--   http-response lua.rival_done                           in the backend
--
-- Ours, written from what their authors publish.  They are there to be measured against, in
-- HAProxy's own data path.  A rule is a table:
--
--   choose(servers)                 for each request, the server that gets it, and so whatever
--                                   `balance` says; or nothing, and `balance` chooses by weight
--   done(server, took_ms, held)     for each answer; held requests were in flight when it was sent
--   tick(servers, elapsed_s)        every `every_s` seconds; sets server.wants, a weight of 1 to 256
--
-- What is told on the runtime socket, `rival left SERVER PART`, is the truth that an oracle knows:
-- what a server can serve at this moment, as a part of what it can serve alone.

local policy, service = os.getenv("RIVAL"), os.getenv("RIVAL_SERVICE")

local servers = {} -- by name
local order = {} -- names, as in the configuration
local events = 0 -- so far: choices and answers; whose last one is longest ago wins a tie

local function now_s()
  local now = core.now()
  return now.sec + now.usec / 1e6
end

local function happened(server)
  events = events + 1
  server.event = events
end

local function least(cost, among)
  local best, best_cost
  for _, each in ipairs(among) do
    local this = cost(each)
    if not best or this < best_cost or (this == best_cost and each.event < best.event) then
      best, best_cost = each, this
    end
  end
  return best
end

local text = loadfile(os.getenv("RIVAL_RULES") .. "/" .. policy .. ".lua")
  or error("no policy '" .. policy .. "'")
local rule = text({ now_s = now_s, least = least, setting = tonumber(os.getenv("RIVAL_SETTING")) })

local function all_servers()
  local all = {}
  for i, name in ipairs(order) do all[i] = servers[name] end
  return all
end

-- Requests in flight are HAProxy's own.
local function read_servers()
  for name, each in pairs(core.backends[service].servers) do
    local stats = each:get_stats()
    if not servers[name] then
      local weight = tonumber(stats.weight)
      servers[name] = {
        name = name, in_flight = 0, left = 1.0, event = 0, weight = weight, configured = weight,
      }
      order[#order + 1] = name
      table.sort(order)
    end
    servers[name].in_flight = tonumber(stats.scur) or servers[name].in_flight
  end
end

local function write_weights()
  for name, each in pairs(servers) do
    if each.wants and each.wants ~= each.weight then
      core.backends[service].servers[name]:set_weight(tostring(each.wants))
      each.weight = each.wants
    end
  end
end

core.register_task(function()
  local last_s = now_s()
  while true do
    read_servers()
    local elapsed_s = now_s() - last_s
    if rule.tick and elapsed_s >= rule.every_s then
      last_s = last_s + elapsed_s
      rule.tick(all_servers(), elapsed_s)
      write_weights()
    end
    core.msleep(50)
  end
end)

core.register_fetches("rival", function(txn)
  if #order == 0 then read_servers() end
  local chosen = rule.choose and rule.choose(all_servers())
  local at_s = now_s()
  if not chosen then
    txn:set_priv({ nil, at_s, 0 })
    return ""
  end
  happened(chosen)
  txn:set_priv({ chosen, at_s, chosen.in_flight })
  chosen.in_flight = chosen.in_flight + 1
  return chosen.name
end)

core.register_action("rival_done", { "http-res" }, function(txn)
  local asked = txn:get_priv()
  if not asked then return end
  txn:set_priv(nil)
  local chosen = asked[1]
  if chosen then
    chosen.in_flight = math.max(chosen.in_flight - 1, 0)
    happened(chosen)
  else
    chosen = servers[txn.f:srv_name()]
  end
  if rule.done and chosen then rule.done(chosen, 1e3 * (now_s() - asked[2]), asked[3]) end
end)

core.register_cli({ "rival", "left" }, "rival left SERVER PART", function(applet, ...)
  local words = { ... }
  local name, left = words[#words - 1], tonumber(words[#words])
  if #order == 0 then read_servers() end
  if servers[name] and left then
    servers[name].left = left -- HAProxy ends the answer, an empty one too
  else
    applet:send("no such server, or no number\n")
  end
end)
