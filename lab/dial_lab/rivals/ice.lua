-- Load leaves a VM that has a neighbour until its CPU utilisation is at a threshold, its setting.
-- (Maji et al., ICAC 2015, the reconfiguration of the load balancer, as Javadi and Gandhi compare with
-- it in IEEE TCC 2019, 4.3.6: the threshold is not published, so the best is looked for.)
--
-- CPU time goes by requests, and requests by weight, so the weight that brings the utilisation to the
-- threshold is the present one times threshold / utilisation.
--
-- Kinder than the original: that a neighbour is there and gone it is told at once, where the original
-- infers it from hardware counters that no tenant is shown now.  Its second step, fewer workers in the
-- web server, has no counterpart where there is one worker.
--
--   setenv RIVAL_USAGE_SERVER FILE     cpuacct.usage (cgroup v1) or cpu.stat (v2) of its VM
--   setenv RIVAL_CORES_SERVER CORES    what the VM believes to have

local lab = ...

local MOST_GROWTH = 2.0 -- of a weight in a tick: a VM that is nearly idle says little

local function cpu_s(name)
  local file = assert(io.open(os.getenv("RIVAL_USAGE_" .. name)))
  local said = file:read("a")
  file:close()
  local usec = said:match("usage_usec (%d+)")
  return usec and usec / 1e6 or tonumber(said) / 1e9
end

return {
  every_s = 1.0,
  tick = function(servers, elapsed_s)
    for _, s in ipairs(servers) do
      local now_s = cpu_s(s.name)
      local used_s = now_s - (s.cpu_s or now_s)
      s.cpu_s = now_s
      if s.left >= 1.0 then
        s.wants = s.configured
      elseif used_s > 0.0 then
        local utilisation = used_s / elapsed_s / tonumber(os.getenv("RIVAL_CORES_" .. s.name))
        local times = math.min(lab.setting / utilisation, MOST_GROWTH)
        s.wants = math.max(1, math.min(s.configured, math.floor(s.weight * times + 0.5)))
      end
    end
  end,
}
